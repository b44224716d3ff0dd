"""Jobs (batch/v1): defaults, generated selector and labels, rules, their table."""

from __future__ import annotations

from typing import Any

from raybus_localkube.kinds import scalars
from raybus_localkube.kinds.ages import age, human
from raybus_localkube.kinds.builtin import podspec
from raybus_localkube.kinds.resource import Call, Column
from raybus_localkube.kinds.typed import TypedStrategy
from raybus_localkube.server.errors import Cause, invalid, not_supported, required

Json = dict[str, Any]
UID, NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
COLUMNS = (
    Column("Name", "string", "name"), Column("Status"), Column("Completions"), Column("Duration"), Column("Age"),
    Column("Containers", priority=1), Column("Images", priority=1), Column("Selector", priority=1),
)  # fmt: skip
COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
)


class JobStrategy(TypedStrategy):
    has_generation = True
    has_status = True
    default_propagation = "Orphan"
    fields = frozenset({"status.successful"})

    def default(self, obj: Json, call: Call) -> None:
        spec = obj.setdefault("spec", {})
        if "completions" not in spec and "parallelism" not in spec:
            spec["completions"] = spec["parallelism"] = 1
        spec.setdefault("parallelism", 1)
        indexed = spec.get("completionMode") == "Indexed"
        if "backoffLimit" not in spec:
            spec["backoffLimit"] = (1 << 31) - 1 if indexed and "backoffLimitPerIndex" in spec else 6
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("manualSelector", False)
        template = spec.setdefault("template", {})
        template.setdefault("metadata", {})
        podspec.default(template.setdefault("spec", {}))
        failed_always = any(rule.get("action") for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ())
        spec.setdefault("podReplacementPolicy", "Failed" if failed_always else "TerminatingOrFailed")

    def prepare_create(self, obj: Json, call: Call) -> None:
        obj["status"] = {}
        spec, meta = obj["spec"], obj["metadata"]
        labels = spec["template"]["metadata"].setdefault("labels", {})
        if not spec["manualSelector"]:
            labels |= {
                UID: meta["uid"],
                NAME: meta.get("name", ""),
                "controller-uid": meta["uid"],
                "job-name": meta.get("name", ""),
            }
            spec.setdefault("selector", {}).setdefault("matchLabels", {})[UID] = meta["uid"]
        if not meta.get("labels") and labels:
            meta["labels"] = dict(labels)

    def validate(self, new: Json, old: Json | None, subresource: str, call: Call) -> list[Cause]:
        if subresource == "status":
            return []
        causes = spec_causes(new["spec"])
        return causes + (change_causes(new["spec"], old["spec"]) if old is not None else [])

    def field(self, obj: Json, path: str) -> str | None:
        return str((obj.get("status") or {}).get("succeeded", 0))

    def columns(self, version: str) -> tuple[Column, ...]:
        return COLUMNS

    def cells(self, obj: Json, version: str, call: Call) -> list[Any]:
        spec, meta, status = obj["spec"], obj["metadata"], obj.get("status") or {}
        containers = spec["template"]["spec"].get("containers") or ()
        selector = (spec.get("selector") or {}).get("matchLabels") or {}
        return [
            meta["name"], word(obj), completions(spec, status), duration(status, call), age(meta.get("creationTimestamp"), call.env.now()),
            ",".join(c["name"] for c in containers), ",".join(c.get("image", "") for c in containers),
            ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>",
        ]  # fmt: skip


def word(obj: Json) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    true = {c["type"] for c in conditions if c.get("status") == "True"}
    if "Complete" in true:
        return "Complete"
    if "Failed" in true:
        return "Failed"
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for kind, shown in (
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if kind in true:
            return shown
    return "Running"


def completions(spec: Json, status: Json) -> str:
    done = status.get("succeeded", 0)
    if "completions" in spec:
        return f"{done}/{spec['completions']}"
    return f"{done}/1 of {spec['parallelism']}" if spec["parallelism"] > 1 else f"{done}/1"


def duration(status: Json, call: Call) -> str:
    start = status.get("startTime")
    if not start:
        return ""
    ends = status.get("completionTime")
    finish = scalars.parse_time(ends) if ends else call.env.now()
    return human((finish - scalars.parse_time(start)).total_seconds())


def spec_causes(spec: Json) -> list[Cause]:
    causes = [
        invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
        for name in COUNTS
        if spec.get(name) is not None and spec[name] < 0
    ]
    mode = spec["completionMode"]
    if mode not in ("Indexed", "NonIndexed"):
        causes.append(not_supported("spec.completionMode", mode, ["Indexed", "NonIndexed"]))
    if mode == "Indexed" and spec.get("completions") is None:
        causes.append(required("spec.completions", "when completion mode is Indexed"))
    template = spec["template"]["spec"]
    problems = podspec.validate(template, "spec.template.spec")
    policy = template.get("restartPolicy")
    if policy == "Always":
        problems.append(Cause(
            "spec.template.spec.restartPolicy", "FieldValueRequired",
            'Required value: valid values: "OnFailure", "Never"',
        ))  # fmt: skip
    return causes + problems


def change_causes(new: Json, old: Json) -> list[Cause]:
    causes = []
    for name in (
        "completions",
        "selector",
        "template",
        "completionMode",
        "manualSelector",
        "podFailurePolicy",
        "backoffLimitPerIndex",
    ):
        fresh, before = new.get(name), old.get(name)
        if fresh == before:
            continue
        if name == "template" and old.get("suspend"):
            fresh, before = scheduling_free(new["template"]), scheduling_free(old["template"])
            if fresh == before:
                continue
        if (
            name == "completions"
            and new["completionMode"] == "Indexed"
            and new.get("completions") == new.get("parallelism")
        ):
            continue
        causes.append(invalid(f"spec.{name}", new.get(name), "field is immutable"))
    return causes


def scheduling_free(template: Json) -> Json:
    """A template without what may change while the job is suspended."""
    spec = {
        k: v
        for k, v in template["spec"].items()
        if k not in ("nodeSelector", "tolerations", "affinity", "schedulingGates")
    }
    return {
        "metadata": {k: v for k, v in template.get("metadata", {}).items() if k not in ("labels", "annotations")},
        "spec": spec,
    }

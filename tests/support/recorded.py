"""What the reference operator made, put into an API server as it is: the snapshots of ../shared/golden, beside the repository.

Placeholders become values of the same kind; uids become those that the API server gives. What Kubernetes' own controllers make
of the objects (the pods of a Job) is left to them.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from raybus.domain import kinds, labels
from raybus.domain.kinds import Kind
from raybus.kube.client import KubeClient
from support.kube import ROOT

CASES = ROOT.parent / "shared" / "golden" / "cases"
ORDER = ("Secret", "ServiceAccount", "Role", "RoleBinding", "RayCluster", "Service", "Ingress", "Pod", "Job")
SERVERS_OWN = ("uid", "resourceVersion", "generation", "creationTimestamp", "selfLink")
READY = [{"type": "Ready", "status": "True"}]
_UID = re.compile(r"<uid:([A-Za-z]+/(?:<\w+>|[^<>])*)>")


class Recorded:
    """One snapshot of a case. `subject` and `objects` hold what the API server answered, by kind and name."""

    def __init__(self, case: str, after: str, namespace: str) -> None:
        snapshots = json.loads((CASES / case / "expected.json").read_text())
        snapshot = next(each for each in snapshots if each["after"] == after)
        self.namespace = namespace
        self._wanted = [snapshot["subject"], *sorted(snapshot["objects"], key=_place)]
        self._uids: dict[str, str] = {}
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}

    @property
    def job_id(self) -> str:
        return str(self.objects["RayJob", self.name]["status"]["jobId"])

    @property
    def name(self) -> str:
        return str(self._wanted[0]["metadata"]["name"])

    async def put(self, kube: KubeClient) -> None:
        """Create everything, with its status; pods get none, somebody plays them."""
        for obj in self._wanted:
            kind = obj["kind"]
            if kind not in ORDER and kind not in ("RayCluster", "RayJob"):
                continue  # of a batch scheduler, whose kinds are not served here
            if "batch.kubernetes.io/job-name" in (obj["metadata"].get("labels") or {}):
                continue
            named = self._named(obj)
            body = _creatable(named)
            assert "<uid:" not in json.dumps(body), f"an owner that is not there yet: {body}"
            created = await kube.create(kinds.kind_named(kind), body, namespace=self.namespace)
            self._uids[f"{kind}/{obj['metadata']['name']}"] = created["metadata"]["uid"]
            if status := named.get("status") if kind in ("RayCluster", "RayJob") else None:
                created = await kube.merge_patch(
                    kinds.kind_named(kind), self.namespace, created["metadata"]["name"], {"status": status},
                    subresource="status",
                )  # fmt: skip
            self.objects[kind, created["metadata"]["name"]] = created

    def _named(self, obj: dict[str, Any]) -> dict[str, Any]:
        text = _UID.sub(lambda match: self._uids.get(match[1], match[0]), json.dumps(obj))
        moment = (datetime.now(UTC) - timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for placeholder, value in (
            ("<ns>", self.namespace), ("<time>", moment), ("<version>", "v1.5.1"), ("<ip>", "10.9.0.1"),
            ("<jobid>", f"{self.name}-h7xkq"), ("<message>", "as it was"), ("<data>", "eA=="), ("<hash>", "0" * 40),
            ("<uid8>", "0a1b2c3d"),
        ):  # fmt: skip
            text = text.replace(placeholder, value)
        text = re.sub(r"<([a-z])(\d*)>", lambda match: f"{match[1]}x{match[2] or 0:0>3}", text)
        found: dict[str, Any] = json.loads(re.sub(r"<script: ([^>]*)>", r"true # \1;", text))
        return found


def _place(obj: dict[str, Any]) -> int:
    return ORDER.index(obj["kind"]) if obj["kind"] in ORDER else len(ORDER)


def _creatable(obj: dict[str, Any]) -> dict[str, Any]:
    """Without what a server sets itself, and would not take from others."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in (*SERVERS_OWN, "namespace")}
    body = {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}
    spec = dict(body.get("spec") or {})
    if obj["kind"] == "Service":
        if spec.get("clusterIP") != "None":
            spec = {key: value for key, value in spec.items() if key not in ("clusterIP", "clusterIPs")}
        spec["ports"] = [{k: v for k, v in port.items() if k != "nodePort"} for port in spec.get("ports") or ()]
        spec.pop("healthCheckNodePort", None)
    if obj["kind"] == "Job":
        spec = {key: value for key, value in spec.items() if key not in ("selector", "manualSelector")}
        marks = spec["template"]["metadata"]["labels"]
        kept = {key: value for key, value in marks.items() if "controller-uid" not in key and "job-name" not in key}
        spec["template"] = {**spec["template"], "metadata": {"labels": kept}}
    return body | ({"spec": spec} if spec else {})


def serves(kind: Kind) -> bool:
    """Whether `put` makes objects of this kind."""
    return kind.kind in (*ORDER, "RayJob")


async def run(kube: KubeClient, namespace: str, selector: str = labels.CLUSTER) -> None:
    """All these pods become running and ready, as under a kubelet."""
    for number, pod in enumerate(await kube.list_all(kinds.POD, namespace, label_selector=selector)):
        spec = pod["spec"]
        statuses = [
            {
                "name": container["name"], "ready": True, "restartCount": 0, "image": container["image"],
                "imageID": "", "state": {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}},
            }
            for container in spec["containers"]
        ]  # fmt: skip
        status = {
            "phase": "Running", "podIP": f"10.9.0.{number + 1}", "conditions": READY, "containerStatuses": statuses,
        }  # fmt: skip
        await kube.merge_patch(kinds.POD, namespace, pod["metadata"]["name"], {"status": status}, subresource="status")

"""What makes a RayJob refused, in the order in which it is looked for. The first problem found is reported.

Pure. A problem names the field and says what to do. `RULES` hold in every state in which a spec still matters; `FIRST_RULES`
refuse what can never work and are looked at only before anything was made, so that no release of Raybus breaks what runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from raybus.decide.reasons import Complaint
from raybus.domain import cluster_validation, labels, names
from raybus_job_ctrl.build import request, runtime_env, script, submitter
from raybus_job_ctrl.build.head_service import dashboard_port
from raybus_job_ctrl.decide import reasons
from raybus_job_ctrl.decide.policy import Policy
from raybus_job_ctrl.decide.table import Mode
from raybus_job_ctrl.decide.world import JobWorld

Json = Mapping[str, Any]
Rule = Callable[[JobWorld, Policy], str]

NAME_MAX = names.MAX_CLUSTER_NAME - 6  # room for "-" and five characters
METADATA_SINCE = (2, 6, 0)
ADDRESS_MAX = 320  # characters of host and port
ARGUMENT_MAX = 128 * 1024 - 1  # bytes that Linux gives one argument


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`complaint` is the kind of Warning, `text` what is wrong and what to do."""

    complaint: Complaint
    text: str


def problem_of(world: JobWorld, policy: Policy, *, first: bool) -> Problem | None:
    """The first problem; `first` while nothing was made yet."""
    if text := cluster_validation.metadata_problem(world.meta["name"], NAME_MAX):
        return Problem(complaint=reasons.METADATA, text=text)
    if world.unreadable:
        return Problem(complaint=reasons.SPEC, text=world.unreadable)
    rules: Iterable[Rule] = (*RULES, *FIRST_RULES) if first else RULES
    text = next((found for rule in rules if (found := rule(world, policy))), "")
    return Problem(complaint=reasons.SPEC, text=text) if text else None


def _time_to_live(world: JobWorld, _: Policy) -> str:
    ttl = world.spec.get("ttlSecondsAfterFinished") or 0
    if ttl < 0:
        return f"spec.ttlSecondsAfterFinished: {ttl} must not be negative"
    if ttl > 0 and not world.spec.get("shutdownAfterJobFinishes"):
        return (
            "spec.ttlSecondsAfterFinished: has no effect without spec.shutdownAfterJobFinishes: true; set both or none"
        )
    return ""


def _cluster_given(world: JobWorld, _: Policy) -> str:
    if world.spec.get("rayClusterSpec") is None and not world.spec.get("clusterSelector"):
        return "spec.rayClusterSpec: missing; say which cluster the job needs, at least headGroupSpec.template"
    return ""


def _cluster(world: JobWorld, policy: Policy) -> str:
    spec = world.spec.get("rayClusterSpec")
    if spec is None:
        return ""
    if (spec.get("authOptions") or {}).get("enableK8sTokenAuth"):
        return "spec.rayClusterSpec.authOptions.enableK8sTokenAuth: not possible for a RayJob; leave it out"
    text = cluster_validation.spec_problem(spec, world.annotations, policy.gates)
    return _inside(text)


def _inside(text: str) -> str:
    """A problem of the cluster's spec, under the name that its field has in a RayJob."""
    if text.startswith("spec."):
        return f"spec.rayClusterSpec.{text.removeprefix('spec.')}"
    return f"spec.rayClusterSpec: {text}" if text else ""


def _runtime_env(world: JobWorld, _: Policy) -> str:
    try:
        runtime_env.parse(world.spec.get("runtimeEnvYAML") or "")
    except runtime_env.RuntimeEnvError as error:
        return f"spec.runtimeEnvYAML: {error}"
    return ""


def _variables(world: JobWorld, _: Policy) -> str:
    """Ray takes text only, and its refusal would repeat the value."""
    found = runtime_env.parse(world.spec.get("runtimeEnvYAML") or "").get("env_vars")
    if found is not None and not isinstance(found, Mapping):
        return "spec.runtimeEnvYAML: env_vars must be a mapping of names to texts"
    odd = [name for name, value in (found or {}).items() if not isinstance(value, str)]
    return f"spec.runtimeEnvYAML: env_vars.{odd[0]} must be text; put its value in quotes" if odd else ""


def _upgrade(world: JobWorld, _: Policy) -> str:
    return _inside(cluster_validation.upgrade_problem(world.cluster_spec, {labels.ORIGINATED_FROM_CRD: "RayJob"}))


def _numbers(world: JobWorld, _: Policy) -> str:
    for field in ("activeDeadlineSeconds", "preRunningDeadlineSeconds"):
        seconds = world.spec.get(field)
        if seconds is not None and seconds <= 0:
            return f"spec.{field}: {seconds} must be positive"
    limit = world.spec.get("backoffLimit") or 0
    return f"spec.backoffLimit: {limit} must not be negative" if limit < 0 else ""


def _mode(world: JobWorld, _: Policy) -> str:
    if world.mode in Mode._value2member_map_:
        return ""
    return f"spec.submissionMode: {world.mode!r} is none of {', '.join(Mode)}"


def _entrypoint(world: JobWorld, _: Policy) -> str:
    spec = world.spec
    text = spec.get("entrypoint") or ""
    if "\0" in text:
        return "spec.entrypoint: must not contain a NUL character, no command line can"
    if text.strip() or world.mode == Mode.INTERACTIVE:
        return ""
    if world.mode == Mode.K8S_JOB and not submitter.generates_script(spec):
        return ""
    return "spec.entrypoint: missing; say which command the job runs, such as `python main.py`"


def _script(world: JobWorld, _: Policy) -> str:
    """The submitter is given its script as one argument, and Ray's command line the job's id."""
    spec = world.spec
    if world.mode != Mode.K8S_JOB or not submitter.generates_script(spec):
        return ""
    job_id = spec.get("jobId") or ""
    if job_id.startswith("-"):
        return f"spec.jobId: {job_id!r} must not begin with '-', Ray's command line would take it for an option"
    text = script.submit_script(spec, address="h" * ADDRESS_MAX, submission_id=job_id or "j" * NAME_MAX)
    if len(text.encode()) > ARGUMENT_MAX:
        return (
            "spec.entrypoint: too long, with runtimeEnvYAML and metadata, for a command line of 128 KiB; put the program"
            " into a file of the image or of runtime_env's working_dir"
        )
    return ""


def _resources(world: JobWorld, _: Policy) -> str:
    text = world.spec.get("entrypointResources")
    if not text:
        return ""
    try:
        request.parse_resources(text)
    except request.ResourcesError as error:
        return f"spec.entrypointResources: {error}"
    return ""


def _metadata(world: JobWorld, _: Policy) -> str:
    """Ray's command line knows job metadata since 2.6; by HTTP it always went."""
    given = str(world.cluster_spec.get("rayVersion") or "")
    if not world.spec.get("metadata") or world.mode == Mode.HTTP or not given:
        return ""
    number = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", given)
    if number is None or tuple(int(part or 0) for part in number.groups()) >= METADATA_SINCE:
        return ""
    return f"spec.metadata: needs Ray 2.6.0, and spec.rayClusterSpec.rayVersion is {given}; use a newer Ray or HTTPMode"


def _submitter(world: JobWorld, _: Policy) -> str:
    template = world.spec.get("submitterPodTemplate")
    if template is None or world.mode != Mode.K8S_JOB:
        return ""
    pod = template.get("spec") or {}
    if not pod.get("containers"):
        return "spec.submitterPodTemplate.spec.containers: empty; the first container submits the job"
    policy = pod.get("restartPolicy") or "Never"
    if policy not in ("Never", "OnFailure"):
        return f"spec.submitterPodTemplate.spec.restartPolicy: {policy} is not possible in a Job; use Never"
    return ""


def _dashboard(world: JobWorld, _: Policy) -> str:
    spec = world.spec.get("rayClusterSpec")
    if spec is None or dashboard_port({"spec": spec}) is not None:
        return ""
    return (
        "spec.rayClusterSpec.headGroupSpec.template.spec.containers[0].ports: none is named `dashboard`, so the job cannot be"
        " submitted; add it, or give no ports at all"
    )


RULES: tuple[Rule, ...] = (_time_to_live, _cluster_given, _cluster, _runtime_env, _numbers)
FIRST_RULES: tuple[Rule, ...] = (
    _mode,
    _entrypoint,
    _variables,
    _resources,
    _metadata,
    _submitter,
    _script,
    _upgrade,
    _dashboard,
)

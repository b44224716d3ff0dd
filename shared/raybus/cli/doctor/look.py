"""Reading Kubernetes objects: what their fields say about pods, workloads and settings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raybus.cli.doctor.facts import Json

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
SAID_MAX = 600
PULL_PROBLEMS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)


def name_of(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def labels_of(obj: Json) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def component_of(obj: Json) -> str:
    """The service that an object belongs to, such as "job-ctrl"."""
    return labels_of(obj).get(COMPONENT, "")


def container_statuses(pod: Json) -> Iterator[Json]:
    status = pod.get("status") or {}
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def condition(obj: Json, kind: str) -> Json | None:
    """The status condition of this type."""
    found = ((obj.get("status") or {}).get("conditions")) or ()
    return next((each for each in found if each["type"] == kind), None)


def is_ready(pod: Json) -> bool:
    return (condition(pod, "Ready") or {}).get("status") == "True"


def is_over(pod: Json) -> bool:
    """Whether a pod has run to its end, or is going away: it need not be ready."""
    return (pod.get("status") or {}).get("phase") == "Succeeded" or "deletionTimestamp" in pod["metadata"]


def why_not_ready(pod: Json) -> str:
    """In the words of the kubelet or the scheduler; empty if they have none."""
    for container in container_statuses(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in ("PodInitializing", "ContainerCreating"):
            return f"container {container['name']}: {_words(waiting)}{_last_end(container)}"
    scheduled = condition(pod, "PodScheduled") or {}
    if scheduled.get("status") == "False":
        return f"not scheduled: {scheduled.get('message') or scheduled.get('reason', '')}"
    for container in container_statuses(pod):
        state = container.get("state") or {}
        if waiting := state.get("waiting"):
            return f"container {container['name']}: {_words(waiting)}"
        if ended := state.get("terminated"):
            return f"container {container['name']} {_end(ended)}"
    return ""


def has_begun(pod: Json) -> bool:
    """Whether any of its containers has run: else there is no log."""
    states = [{**(each.get("state") or {}), **(each.get("lastState") or {})} for each in container_statuses(pod)]
    return any("running" in state or "terminated" in state for state in states)


def _words(state: Json) -> str:
    return ": ".join(filter(None, (str(state.get("reason", "")), str(state.get("message", "")))))


def _last_end(container: Json) -> str:
    ended = (container.get("lastState") or {}).get("terminated") or {}
    return f"; before that it {_end(ended)}" if ended else ""


def _end(ended: Json) -> str:
    """With the last line of what it said: more of its log may stand there."""
    said = (ended.get("message") or "").strip().splitlines()[-1:]
    words = _words({"reason": ended.get("reason", ""), "message": "".join(said)[:SAID_MAX]})
    return f"ended with code {ended.get('exitCode')} ({words})"


def pull_problems(pod: Json) -> Iterator[tuple[str, str]]:
    """Image, and why it does not come."""
    for container in container_statuses(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in PULL_PROBLEMS:
            yield str(container.get("image", "")), _words(waiting)


def restarts(pod: Json) -> tuple[int, str]:
    """How often its containers began again, and how the last one ended before."""
    count, why = 0, ""
    for container in container_statuses(pod):
        count += int(container.get("restartCount", 0))
        ended = (container.get("lastState") or {}).get("terminated") or {}
        why = str(ended.get("reason", "")) or why
    return count, why


def settings_of(workload: Json) -> dict[str, str]:
    """RAYBUS_* variables of its first container, by name; values from elsewhere are left out."""
    containers: list[dict[str, Any]] = workload["spec"]["template"]["spec"]["containers"]
    return {each["name"]: str(each["value"]) for each in containers[0].get("env") or () if "value" in each}


def takes_over(workload: Json) -> bool:
    """Whether a controller was told to start beside another operator."""
    return settings_of(workload).get("RAYBUS_TAKE_OVER", "").lower() in ("1", "true")


def is_at_work(job: Json) -> bool:
    """Whether a Job has not come to its end."""
    return not any((condition(job, kind) or {}).get("status") == "True" for kind in ("Complete", "Failed"))


def account_of(workload: Json) -> str:
    return str(workload["spec"]["template"]["spec"].get("serviceAccountName") or "default")


def namespaces_of(workload: Json) -> tuple[str, ...]:
    """The namespaces that a service looks after; ("",) for all."""
    named = settings_of(workload).get("RAYBUS_NAMESPACES", "")
    return tuple(filter(None, (part.strip() for part in named.split(",")))) or ("",)

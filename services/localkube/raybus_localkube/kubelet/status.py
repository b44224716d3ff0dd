"""The status of a Pod as a kubelet writes it.

Pure. One function per part; whether it differs from what is stored is decided here too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from raybus.domain import times
from raybus_localkube.kubelet import lifecycle, podspec
from raybus_localkube.kubelet.lifecycle import ContainerView, PodView, Run
from raybus_localkube.kubelet.podspec import Container, Pod

IMAGE_ID = "raybus://local-python-environment"
OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
_OWN_FIELDS = ("phase", "reason", "message", "hostIP", "hostIPs", "podIP", "podIPs", "startTime", "qosClass",
               "initContainerStatuses", "containerStatuses")  # fmt: skip

Json = dict[str, Any]


def build(pod: Pod, view: PodView, host_ip: str, now: datetime) -> Json:
    """The whole status; fields and conditions that others own are kept."""
    stored: Mapping[str, Any] = pod.get("status") or {}
    status: Json = {name: value for name, value in stored.items() if name not in _OWN_FIELDS}
    phase = phase_of(pod, view, now)
    status["phase"] = phase
    status.update(_reason(pod, view, now))
    status["hostIP"] = host_ip
    status["hostIPs"] = [{"ip": host_ip}]
    ip = view.ip or str(stored.get("podIP") or "")
    if ip:
        status["podIP"] = ip
        status["podIPs"] = [{"ip": ip}]
    status["startTime"] = stored.get("startTime") or times.rfc3339(view.started_at or now)
    status["qosClass"] = stored.get("qosClass") or podspec.qos_class(pod)
    if podspec.init_containers(pod):
        status["initContainerStatuses"] = [_init_status(pod, c, view) for c in podspec.init_containers(pod)]
    status["containerStatuses"] = [_container_status(pod, c, view) for c in podspec.containers(pod)]
    status["conditions"] = _conditions(pod, view, phase, stored.get("conditions") or (), now)
    return status


def patch(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> Json | None:
    """The merge patch from one status to the other; None where they mean the same."""
    if dict(stored) == dict(wanted):
        return None
    changed: Json = {name: value for name, value in wanted.items() if stored.get(name) != value}
    changed.update(dict.fromkeys(stored.keys() - wanted.keys()))
    return {"status": changed} if changed else None


def phase_of(pod: Pod, view: PodView, now: datetime) -> str:
    final = lifecycle.final_phase(pod, view)
    if final:
        return final
    if lifecycle.deadline_exceeded(pod, view, now):
        return "Failed"
    if not _initialized(pod, view):
        return "Pending"
    begun = [view.of(container["name"]).run is not None for container in podspec.containers(pod)]
    return "Running" if begun and all(begun) else "Pending"


def _reason(pod: Pod, view: PodView, now: datetime) -> Json:
    stored = pod.get("status") or {}
    kept = {
        name: stored[name] for name in ("reason", "message") if stored.get("phase") == "Failed" and stored.get(name)
    }
    if not kept and lifecycle.deadline_exceeded(pod, view, now) and not lifecycle.final_phase(pod, view):
        return {
            "reason": "DeadlineExceeded",
            "message": "Pod was active on the node longer than the specified deadline",
        }
    return kept


def _initialized(pod: Pod, view: PodView) -> bool:
    runs = [view.of(container["name"]).run for container in podspec.init_containers(pod)]
    return all(run is not None and run.succeeded for run in runs)


# Containers


def _container_status(pod: Pod, container: Container, view: PodView) -> Json:
    known = view.of(container["name"])
    waiting = "ContainerCreating" if _initialized(pod, view) else "PodInitializing"
    entry = _common_status(pod, container, known, waiting)
    entry["ready"] = known.running and known.ready
    entry["started"] = known.running and known.started
    return entry


def _init_status(pod: Pod, container: Container, view: PodView) -> Json:
    known = view.of(container["name"])
    entry = _common_status(pod, container, known, "PodInitializing")
    entry["ready"] = known.run is not None and known.run.succeeded
    entry["started"] = known.running
    return entry


def _common_status(pod: Pod, container: Container, known: ContainerView, waiting: str) -> Json:
    state, last = _states(pod, container, known, waiting)
    run = known.run
    entry: Json = {
        "name": container["name"],
        "state": state,
        "lastState": last,
        "restartCount": run.attempt if run is not None else 0,
        "image": container.get("image") or "",
        "imageID": IMAGE_ID if run is not None else "",
    }
    if run is not None:
        entry["containerID"] = container_id(podspec.uid(pod), container["name"], run)
    return entry


def _states(pod: Pod, container: Container, known: ContainerView, waiting: str) -> tuple[Json, Json]:
    """The fields state and lastState."""
    name, run, last = container["name"], known.run, known.last
    before = {"terminated": _terminated(pod, name, last)} if last is not None else {}
    if run is not None and run.running:
        return {"running": {"startedAt": times.rfc3339(run.started)}}, before
    if known.problem is not None:
        reason, message = known.problem
        return {"waiting": {"reason": reason, "message": message}}, before
    if run is None:
        return {"waiting": {"reason": waiting}}, before
    ended = {"terminated": _terminated(pod, name, run)}
    if pod["metadata"].get("deletionTimestamp") or not known.backoff.delay:
        return ended, before
    if not podspec.restarts(pod, container, run.exit_code):
        return ended, before
    delay = int(known.backoff.delay.total_seconds())
    whole = f"{pod['metadata']['name']}_{pod['metadata']['namespace']}({podspec.uid(pod)})"
    message = f"back-off {_spoken(delay)} restarting failed container={name} pod={whole}"
    return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}, ended


def _spoken(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _terminated(pod: Pod, name: str, run: Run) -> Json:
    entry: Json = {
        "exitCode": run.exit_code,
        "reason": run.reason or ("Completed" if run.exit_code == 0 else "Error"),
        "startedAt": times.rfc3339(run.started),
        "finishedAt": times.rfc3339(run.finished or run.started),
        "containerID": container_id(podspec.uid(pod), name, run),
    }
    if run.message:
        entry["message"] = run.message
    return entry


def container_id(uid: str, name: str, run: Run) -> str:
    """Unique per run; a digest, because readers expect a runtime's name and hexadecimal digits."""
    if run.container_id:
        return run.container_id
    return "raybus://" + hashlib.sha256(f"{uid}/{name}/{run.attempt}".encode()).hexdigest()


# Conditions


def _conditions(pod: Pod, view: PodView, phase: str, stored: Sequence[Mapping[str, Any]], now: datetime) -> list[Json]:
    old = {condition["type"]: condition for condition in stored}
    wanted = [
        _condition("PodReadyToStartContainers", view.prepared),
        _initialized_condition(pod, view, phase),
        *_ready_conditions(pod, view, phase, old),
        _condition("PodScheduled", True),
    ]
    result = [_kept_or_new(old.get(str(condition["type"])), condition, now) for condition in wanted]
    return result + [dict(condition) for condition in stored if condition["type"] not in OWN_CONDITIONS]


def _condition(kind: str, true: bool, reason: str = "", message: str = "") -> Json:
    entry: Json = {"type": kind, "status": "True" if true else "False"}
    if reason:
        entry["reason"] = reason
    if message:
        entry["message"] = message
    return entry


def _initialized_condition(pod: Pod, view: PodView, phase: str) -> Json:
    if phase == "Succeeded":
        return _condition("Initialized", True, "PodCompleted")
    waiting = [c["name"] for c in podspec.init_containers(pod) if not _succeeded(view.of(c["name"]))]
    if not waiting:
        return _condition("Initialized", True)
    return _condition(
        "Initialized", False, "ContainersNotInitialized", f"containers with incomplete status: {_list(waiting)}"
    )


def _succeeded(known: ContainerView) -> bool:
    return known.run is not None and known.run.succeeded


def _ready_conditions(pod: Pod, view: PodView, phase: str, stored: Mapping[str, Mapping[str, Any]]) -> list[Json]:
    if phase == "Succeeded":
        return [_condition(kind, False, "PodCompleted") for kind in ("Ready", "ContainersReady")]
    if phase == "Failed":
        return [_condition(kind, False, "PodFailed") for kind in ("Ready", "ContainersReady")]
    unready = [c["name"] for c in podspec.containers(pod) if not _is_ready(view.of(c["name"]))]
    if unready:
        message = f"containers with unready status: {_list(unready)}"
        return [_condition(kind, False, "ContainersNotReady", message) for kind in ("Ready", "ContainersReady")]
    gates = [str(gate["conditionType"]) for gate in pod["spec"].get("readinessGates") or ()]
    missing = [gate for gate in gates if stored.get(gate, {}).get("status") != "True"]
    if missing:
        message = f"the status of pod readiness gate {_list(missing)} is not True"
        return [_condition("Ready", False, "ReadinessGatesNotReady", message), _condition("ContainersReady", True)]
    return [_condition("Ready", True), _condition("ContainersReady", True)]


def _is_ready(known: ContainerView) -> bool:
    return known.running and known.ready


def _list(names: Iterable[str]) -> str:
    return "[" + " ".join(names) + "]"


def _kept_or_new(old: Mapping[str, Any] | None, wanted: Json, now: datetime) -> Json:
    """The condition with the time of its last change; an unchanged one is exactly what is stored."""
    since = times.rfc3339(now)
    if old is not None and old.get("status") == wanted["status"] and old.get("lastTransitionTime"):
        since = str(old["lastTransitionTime"])
    entry: Json = {"lastProbeTime": None, "lastTransitionTime": since, **wanted}
    if old is not None and "observedGeneration" in old:
        entry["observedGeneration"] = old["observedGeneration"]
    if old is not None and "lastProbeTime" not in old:
        del entry["lastProbeTime"]
    return entry

"""The printed columns of pods. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from raybus_localkube.kinds.ages import age
from raybus_localkube.kinds.resource import Column

Json = dict[str, Any]
POD_COLUMNS = (
    Column("Name", "string", "name"), Column("Ready"), Column("Status"), Column("Restarts"), Column("Age"),
    Column("IP", priority=1), Column("Node", priority=1), Column("Nominated Node", priority=1), Column("Readiness Gates", priority=1),
)  # fmt: skip


def pod_cells(obj: Json, now: datetime) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    reason, ready, total, restarts, last = summary(obj)
    shown = restarts if not restarts or not last else f"{restarts} ({age(last, now)} ago)"
    ips = status.get("podIPs") or []
    ip = ips[0].get("ip", "") if ips else status.get("podIP", "")
    gates = spec.get("readinessGates") or []
    true = {c["type"] for c in status.get("conditions") or () if c.get("status") == "True"}
    met = sum(gate["conditionType"] in true for gate in gates)
    return [
        obj["metadata"]["name"], f"{ready}/{total}", reason, str(shown), age(obj["metadata"].get("creationTimestamp"), now),
        ip or "<none>", spec.get("nodeName") or "<none>", status.get("nominatedNodeName") or "<none>",
        f"{met}/{len(gates)}" if gates else "<none>",
    ]  # fmt: skip


def restartable(container: Json) -> bool:
    return bool(container.get("restartPolicy") == "Always")


def summary(obj: Json) -> tuple[str, int, int, int, str | None]:
    """Status word, ready and all containers, restarts, and when the last one was."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    reason = status.get("reason") or status.get("phase") or "Unknown"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    sidecars = {c["name"] for c in spec.get("initContainers") or () if restartable(c)}
    total = len(spec.get("containers") or ()) + len(sidecars)
    initialising, reason, ready, restarts, last = init_summary(status, spec, sidecars, reason)
    if not initialising or finished_init(status):
        sidecar_restarts, sidecar_last = sidecar_summary(status, sidecars)
        restarts, last = sidecar_restarts, sidecar_last
        reason, running, more, last = container_summary(status, reason, last)
        ready, restarts = ready + running, restarts + more
    if obj["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            reason = "Terminating"
    return reason, ready, total, restarts, last


def finished_init(status: Json) -> bool:
    return any(c["type"] == "Initialized" and c.get("status") == "True" for c in status.get("conditions") or ())


def sidecar_summary(status: Json, sidecars: set[str]) -> tuple[int, str | None]:
    restarts, last = 0, None
    for found in status.get("initContainerStatuses") or ():
        if found["name"] in sidecars:
            restarts += found.get("restartCount", 0)
            last = later(last, ended(found))
    return restarts, last


def ended(found: Json) -> str | None:
    terminated = (found.get("lastState") or {}).get("terminated") or {}
    return terminated.get("finishedAt")


def later(first: str | None, second: str | None) -> str | None:
    return max(filter(None, (first, second)), default=None)


def init_summary(status: Json, spec: Json, sidecars: set[str], reason: str) -> tuple[bool, str, int, int, str | None]:
    restarts, ready, last = 0, 0, None
    initialising, shown = False, reason
    for index, found in enumerate(status.get("initContainerStatuses") or ()):
        restarts += found.get("restartCount", 0)
        last = later(last, ended(found))
        state = found.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        sidecar = found["name"] in sidecars
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if sidecar and found.get("started"):
            ready += bool(found.get("ready"))
            continue
        if initialising:
            continue
        initialising = True
        if terminated is not None:
            shown = f"Init:{terminated_word(terminated)}"
        elif waiting and waiting.get("reason") and waiting["reason"] != "PodInitializing":
            shown = f"Init:{waiting['reason']}"
        else:
            shown = f"Init:{index}/{len(spec.get('initContainers') or ())}"
    return initialising, shown, ready, restarts, last


def terminated_word(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def container_summary(status: Json, reason: str, last: str | None) -> tuple[str, int, int, str | None]:
    ready, restarts, running = 0, 0, False
    for found in reversed(status.get("containerStatuses") or ()):
        restarts += found.get("restartCount", 0)
        last = later(last, ended(found))
        state = found.get("state") or {}
        waiting, terminated = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated is not None:
            reason = terminated_word(terminated)
        elif found.get("ready") and state.get("running") is not None:
            running = True
            ready += 1
    if reason == "Completed" and running:
        good = any(c["type"] == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
        reason = "Running" if good else "NotReady"
    return reason, ready, restarts, last

"""Liveness and readiness probes of the Ray container. Pure; each is given only where the user gave none of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raybus.domain import services, start_params, versions
from raybus_cluster_ctrl.build.target import Group

Json = Mapping[str, Any]

_SERVE_PORT = 8000
_HTTP_PROBE_SINCE = (2, 53)
_MAX_INT32 = 2147483647


def probes(group: Group, container: Json, params: Mapping[str, str]) -> dict[str, Json]:
    """The probes to be added to `container`. `params` are the parameters of `ray start`."""
    if not group.policy.inject_probes:
        return {}
    added = {}
    if "livenessProbe" not in container:
        added["livenessProbe"] = _timed(group, _check(group, params), delay=30, failures=120)
    if "readinessProbe" not in container:
        if group.cluster.origin == "RayService" and not group.is_head:
            command = f"{_raylet(params)} && {_serve(container)}"
            added["readinessProbe"] = _timed(group, _exec(command), delay=10, failures=1)
        else:
            added["readinessProbe"] = _timed(group, _check(group, params), delay=10, failures=10)
    return added


def _timed(group: Group, check: Json, *, delay: int, failures: int) -> Json:
    return {
        **check,
        "initialDelaySeconds": delay,
        "timeoutSeconds": 5 if group.is_head else 2,
        "periodSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": failures,
    }


def _check(group: Group, params: Mapping[str, str]) -> Json:
    if versions.at_least(group.cluster.spec.get("rayVersion"), *_HTTP_PROBE_SINCE):
        port = _port(params, "dashboard-agent-listen-port", start_params.AGENT_PORT)
        return {"httpGet": {"path": "/api/healthz", "port": port}}
    return _exec(f"{_raylet(params)} && {_gcs(params)}" if group.is_head else _raylet(params))


def _exec(command: str) -> Json:
    return {"exec": {"command": ["bash", "-c", command]}}


def _raylet(params: Mapping[str, str]) -> str:
    port = _port(params, "dashboard-agent-listen-port", start_params.AGENT_PORT)
    return _wget(2, f"{port}/api/local_raylet_healthz")


def _gcs(params: Mapping[str, str]) -> str:
    return _wget(10, f"{_port(params, 'dashboard-port', services.DASHBOARD_PORT)}/api/gcs_healthz")


def _serve(container: Json) -> str:
    named = (port["containerPort"] for port in container.get("ports") or () if port.get("name") == "serve")
    return _wget(10, f"{next(named, _SERVE_PORT)}/-/healthz")


def _wget(timeout_s: int, place: str) -> str:
    return f"wget --tries 1 -T {timeout_s} -q -O- http://localhost:{place} | grep success"


def _port(params: Mapping[str, str], name: str, default: int) -> int:
    text = params.get(name, "")
    if text.isascii() and text.lstrip("+-").isdigit() and abs(int(text)) <= _MAX_INT32:
        return int(text)
    return default

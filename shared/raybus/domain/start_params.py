"""The parameters of `ray start`: where they come from and how the command is written.

Pure. What may live here: rules from a group's spec to the command line. Values are shell text: nothing is quoted, so that
`$VAR` is expanded when the pod starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from raybus.domain import quantities, resources
from raybus.domain.names import NodeType

Json = Mapping[str, Any]
Params = dict[str, str]

ACCELERATORS: Mapping[str, str] = {"aws.amazon.com/neuroncore": "neuron_cores", resources.TPU: "TPU"}
_ALWAYS_WITH_VALUE = frozenset({"log-color", "include-dashboard", "include-log-monitor"})
AGENT_PORT = 52365
METRICS_PORT = 8080


def from_group(given: Mapping[str, str], group_resources: Mapping[str, str], group_labels: Mapping[str, str]) -> Params:
    """`rayStartParams` with what `resources` and `labels` of the group say, which win."""
    params = {name: str(value) for name, value in given.items()}
    custom: dict[str, float] = {}
    for name, text in group_resources.items():
        quantity = quantities.parse(text)
        if quantity is None:
            continue
        key = name.lower()
        if key == "cpu":
            params["num-cpus"] = str(quantity.rounded_up)
        elif key == "memory":
            params["memory"] = str(quantity.rounded_up)
        elif resources.is_gpu(key):
            params["num-gpus"] = str(quantity.rounded_up)
        else:
            custom[name] = float(quantity.amount)
    if custom:
        params["resources"] = _resources_text(custom)
    if group_labels:
        params["labels"] = ",".join(f"{key}={group_labels[key]}" for key in sorted(group_labels))
    return params


def with_defaults(params: Mapping[str, str], node_type: NodeType, gcs_address: str) -> Params:
    """What every node gets. `gcs_address` (host:port) is for workers."""
    defaults = {"metrics-export-port": str(METRICS_PORT), "dashboard-agent-listen-port": str(AGENT_PORT)}
    if node_type == "head":
        defaults["dashboard-host"] = "0.0.0.0"  # noqa: S104 - the address that Ray's dashboard listens on inside the pod
    else:
        defaults["address"] = gcs_address
    return {**defaults, **params, "block": "true"}


def with_container_resources(params: Mapping[str, str], container_resources: Json) -> Params:
    """CPU, memory and accelerators of the Ray container, where no parameter says so already."""
    limits: Mapping[str, Any] = container_resources.get("limits") or {}
    requests: Mapping[str, Any] = container_resources.get("requests") or {}
    result = dict(params)
    cpu = quantities.parse(limits.get("cpu")) or quantities.parse(requests.get("cpu"))
    if "num-cpus" not in result and cpu:
        result["num-cpus"] = str(cpu.rounded_up)
    memory = quantities.parse(limits.get("memory"))
    if "memory" not in result and memory:
        result["memory"] = str(memory.rounded_up)
    return _with_accelerators(result, limits)


def _with_accelerators(params: Params, limits: Mapping[str, Any]) -> Params:
    known = _parse_resources(params.get("resources"))
    if known is None:
        return params  # unreadable text goes to Ray as it stands
    custom = dict(known)
    taken = any(name in custom for name in ACCELERATORS.values())
    for name in sorted(limits):
        quantity = quantities.parse(limits[name])
        if not quantity:
            continue
        if "num-gpus" not in params and resources.is_gpu(name):
            params["num-gpus"] = str(quantity.rounded_up)
        if not taken and name in ACCELERATORS:
            custom[ACCELERATORS[name]] = float(quantity.amount)
            params["resources"] = _resources_text(custom)
            taken = True
    return params


def _parse_resources(text: str | None) -> Mapping[str, float] | None:
    """The JSON of parameter `resources`, whichever quotes are around it; None if it cannot be read."""
    if text is None:
        return {}
    try:
        found = json.loads(text.strip("'\"` "))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _resources_text(custom: Mapping[str, float]) -> str:
    whole = {name: int(value) if float(value).is_integer() else value for name, value in custom.items()}
    return "'" + json.dumps(whole, sort_keys=True, separators=(",", ":")) + "'"


def command(node_type: NodeType, params: Mapping[str, str]) -> str:
    """`ray start` with its flags, sorted by name; each is set off by a blank on either side."""
    flags = []
    for name in sorted(params):
        value = params[name]
        switch = value.lower()
        if name in _ALWAYS_WITH_VALUE or switch not in ("true", "false"):
            flags.append(f" --{name}={value} ")
        elif switch == "true":
            flags.append(f" --{name} ")
    return ("ray start --head " if node_type == "head" else "ray start ") + "".join(flags)

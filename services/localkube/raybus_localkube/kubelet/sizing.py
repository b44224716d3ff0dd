"""How much CPU and memory the programs of a container are told to have.

Pure. Nothing is enforced, so several pods may be told more than there is; but Ray must not take the whole machine once per pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from raybus.domain import quantities
from raybus_localkube.kubelet.podspec import Container
from raybus_localkube.kubelet.resources import Machine

SHARE_MIN = 1 << 30
SHARE = 4  # a container without limits and requests is told a quarter of the memory
_NUM_CPUS = re.compile(r"--num-cpus[= ](\d+)")


def size(container: Container, env: Mapping[str, str], machine: Machine) -> tuple[float, int]:
    """(cores, bytes): limits, else requests, else a share of the machine. Never fewer cores than Ray is told to have."""
    cpu = _amount(container, "cpu") or max(1.0, machine.cpus / 2)
    start = " ".join([env.get("KUBERAY_GEN_RAY_START_CMD", ""), *(container.get("args") or ())])
    told = _NUM_CPUS.search(start)
    if told:
        cpu = max(cpu, float(told.group(1)))
    memory = int(_amount(container, "memory")) or max(machine.memory // SHARE, SHARE_MIN)
    return cpu, min(memory, machine.memory)


def _amount(container: Mapping[str, Any], name: str) -> float:
    resources = container.get("resources") or {}
    for side in ("limits", "requests"):
        quantity = quantities.parse((resources.get(side) or {}).get(name))
        if quantity is not None and quantity.amount > 0:
            return float(quantity.amount)
    return 0.0

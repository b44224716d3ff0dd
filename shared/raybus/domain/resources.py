"""Resources of pods: which names are accelerators, what a pod asks for, what a cluster asks for.

Pure. Requests count, or the limit where there is no request, summed over the user's containers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raybus.domain import quantities
from raybus.domain.quantities import ZERO, Quantity

Json = Mapping[str, Any]

TPU = "google.com/tpu"
_MIG = re.compile(r"nvidia\.com/mig-\d+g\.\d+gb$")


def is_gpu(name: str) -> bool:
    """Whether a resource's name is a GPU's: it ends with `gpu` or names a MIG slice."""
    return name.endswith("gpu") or _MIG.search(name) is not None


@dataclass(frozen=True, slots=True)
class Desired:
    """What a cluster asks for in all. `printed` gives the four values as they stand in the status."""

    cpu: Quantity = ZERO
    memory: Quantity = ZERO
    gpu: Quantity = ZERO
    tpu: Quantity = ZERO

    def plus(self, other: Desired, times: int = 1) -> Desired:
        return Desired(
            self.cpu + other.cpu * times,
            self.memory + other.memory * times,
            self.gpu + other.gpu * times,
            self.tpu + other.tpu * times,
        )

    def printed(self) -> dict[str, str]:
        return {
            "desiredCPU": str(self.cpu),
            "desiredMemory": str(self.memory),
            "desiredGPU": str(self.gpu),
            "desiredTPU": str(self.tpu),
        }


def of_pod(template: Json) -> Desired:
    """What a pod of this template asks for; init containers and injected side-cars are not counted."""
    wanted: dict[str, Quantity] = {}
    containers: Sequence[Json] = (template.get("spec") or {}).get("containers") or ()
    for container in containers:
        resources = container.get("resources") or {}
        for name, value in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            wanted[name] = wanted.get(name, ZERO) + (quantities.parse(value) or ZERO)
    return Desired(
        cpu=wanted.get("cpu", ZERO),
        memory=wanted.get("memory", ZERO),
        gpu=quantities.total(wanted[name] for name in sorted(wanted) if is_gpu(name)),
        tpu=wanted.get(TPU, ZERO),
    )

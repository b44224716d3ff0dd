"""May a pod without a node run here?

Pure. This is no scheduler: there is one node, CPU is shared rather than reserved (nothing enforces it), memory is counted, and what the
machine does not have (GPUs, another architecture) is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from raybus.domain import quantities
from raybus_localkube.kubelet import podspec
from raybus_localkube.kubelet.podspec import Pod
from raybus_localkube.kubelet.resources import Machine

SCHEDULER = "default-scheduler"
_SHARED = ("cpu", "ephemeral-storage")


def wants_node(pod: Pod) -> bool:
    """A pod that waits for a scheduler, and for the default one."""
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and not pod["metadata"].get("deletionTimestamp")
        and not spec.get("schedulingGates")
        and (spec.get("schedulerName") or SCHEDULER) == SCHEDULER
    )


def requests(pod: Pod) -> dict[str, Fraction]:
    """What the pod asks for: the sum of its containers, or the largest init container where that is more."""
    total: dict[str, Fraction] = {}
    for container in podspec.containers(pod):
        for name, amount in _requests(container).items():
            total[name] = total.get(name, Fraction(0)) + amount
    for container in podspec.init_containers(pod):
        for name, amount in _requests(container).items():
            total[name] = max(total.get(name, Fraction(0)), amount)
    return total


def _requests(container: Mapping[str, object]) -> dict[str, Fraction]:
    resources = container.get("resources") or {}
    assert isinstance(resources, Mapping)
    merged = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    amounts = {name: quantities.parse(value) for name, value in merged.items()}
    return {name: quantity.amount for name, quantity in amounts.items() if quantity is not None}


def refusal(pod: Pod, others: Iterable[Pod], machine: Machine, labels: Mapping[str, str]) -> str:
    """Why the pod cannot run here, in the words of its condition and event; "" if it can."""
    reasons = []
    for name, value in (pod["spec"].get("nodeSelector") or {}).items():
        if labels.get(name) != value:
            reasons.append(f"the local node has no label {name}={value} (nodeSelector)")
    wanted = requests(pod)
    for name, amount in sorted(wanted.items()):
        if name in _SHARED or name.startswith("hugepages-") or not amount:
            continue
        if name != "memory":
            reasons.append(f"Insufficient {name}: the local node has none")
            continue
        used = sum((requests(other).get(name, Fraction(0)) for other in others), Fraction(0))
        if used + amount > machine.memory:
            left = max(Fraction(machine.memory) - used, Fraction(0))
            reasons.append(
                f"Insufficient memory: {_mebi(amount)} requested, {_mebi(left)} of {_mebi(Fraction(machine.memory))} left; "
                "request less, or end other pods"
            )
    return f"0/1 nodes are available: {'; '.join(reasons)}." if reasons else ""


def _mebi(amount: Fraction) -> str:
    return f"{int(amount) >> 20}Mi"

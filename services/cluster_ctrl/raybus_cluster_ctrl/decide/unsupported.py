"""What Raybus does not do yet, as data: a field that asks for it is named in one Warning, and nothing is done. Pure.

A feature that arrives takes its line away.
"""

from __future__ import annotations

from collections.abc import Callable

from raybus.domain import cluster_spec, labels
from raybus_cluster_ctrl.decide.world import ClusterWorld


def _suspended_groups(world: ClusterWorld) -> str:
    return ", ".join(group.name for group in world.groups if group.suspended)


def _groups_of_several_hosts(world: ClusterWorld) -> str:
    return ", ".join(group.name for group in world.groups if group.hosts > 1)


def _fault_tolerant(world: ClusterWorld) -> bool:
    return cluster_spec.fault_tolerant(world.present.spec, world.present.annotations)


# The field, when it asks for something that is not there, and how to find that: true, or the names of the groups meant.
FIELDS: tuple[tuple[str, str, Callable[[ClusterWorld], bool | str]], ...] = (
    ("spec.suspend", "true", lambda world: bool(world.present.spec.get("suspend"))),
    ("spec.gcsFaultToleranceOptions", "given, or asked for by annotation", _fault_tolerant),
    (
        "spec.upgradeStrategy",
        "type Recreate",
        lambda world: (world.present.spec.get("upgradeStrategy") or {}).get("type") == "Recreate",
    ),
    ("spec.workerGroupSpecs[].numOfHosts", "above 1", _groups_of_several_hosts),
    ("spec.workerGroupSpecs[].suspend", "true", _suspended_groups),
    ("spec.networkPolicy", "given", lambda world: world.present.spec.get("networkPolicy") is not None),
    (
        "spec.tlsOptions",
        "enabled: true",
        lambda world: bool((world.present.spec.get("tlsOptions") or {}).get("enabled")),
    ),
    ("spec.historyServerOptions", "given", lambda world: world.present.spec.get("historyServerOptions") is not None),
    (
        f"metadata.annotations[{labels.SERVE_SERVICE}]",
        '"true"',
        lambda world: world.present.annotations.get(labels.SERVE_SERVICE) == "true",
    ),
)


def problem_of(world: ClusterWorld) -> str:
    """What is asked for and not supported; empty if nothing is."""
    asked = [_named(field, when, found) for field, when, test in FIELDS if (found := test(world))]
    return f"not supported yet: {', '.join(asked)}; leave it out, nothing is done until then" if asked else ""


def _named(field: str, when: str, found: bool | str) -> str:
    return f"{field} {when}" + (f" (group {found})" if isinstance(found, str) else "")

"""Which invariants there are, and for which scenarios."""

from __future__ import annotations

from simulation.sim.world import Watcher


def fresh(scenario: str) -> list[Watcher]:
    """New watchers for one run."""
    from simulation.sim.invariants import cluster, common, function, job, marks, neighbours

    return [make() for make in (*common.ALL, *cluster.ALL, *job.ALL, *function.ALL, *neighbours.ALL, marks.Marks)]

"""What is wanted of the world, step by step, and what must have come true at the end: every scenario by its name."""

from __future__ import annotations

from simulation.sim.scenarios import clusters, jobs
from simulation.sim.scenarios.base import Scenario

__all__ = ["SCENARIOS", "Scenario"]

SCENARIOS = {scenario.name: scenario for scenario in (*clusters.ALL, *jobs.ALL)}

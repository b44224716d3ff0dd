"""Probes: what they ask, when they ask next, and what their answers mean.

Pure. Beyond what Kubernetes does, a startup or readiness probe is asked often until its first success, from the start: a success counts
at once, while failures count only after initialDelaySeconds and at most once per period, so that nothing is given up sooner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from raybus_localkube.kubelet.lifecycle import ContainerView, Run
from raybus_localkube.kubelet.podspec import Container

EAGER_S = 0.4  # between two questions until the first success
EAGER_RATIO = (
    20.0  # ... but twenty times as long as an answer takes, so that asking costs a twentieth of a core at most
)

ProbeName = Literal["startup", "readiness", "liveness"]
NAMES: tuple[ProbeName, ...] = ("startup", "readiness", "liveness")


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe of a container; times in seconds. `handler` is the Pod's own object with exec, httpGet or tcpSocket."""

    name: ProbeName
    handler: Mapping[str, Any]
    initial_delay_s: float
    timeout_s: float
    period_s: float
    successes: int
    failures: int

    @property
    def eager(self) -> bool:
        return self.name != "liveness" and self.successes == 1


@dataclass(frozen=True, slots=True)
class Tally:
    """Answers so far: how many in a row of the same kind, the verdict they led to (None: none yet), when one counted last."""

    verdict: bool | None = None
    successes: int = 0
    failures: int = 0
    counted_at: float | None = None


def began(container: Container, known: ContainerView, run: Run) -> ContainerView:
    """The view of a container that has just been started: what no probe asks about is so at once."""
    asked = probes(container)
    started = "startup" not in asked
    return ContainerView(
        run=replace(run, running=True, finished=None),
        last=known.run,
        backoff=known.backoff,
        started=started,
        ready=started and "readiness" not in asked,
    )


def found(container: Container, known: ContainerView, name: ProbeName, *, verdict: bool) -> ContainerView:
    """The view after a probe's new verdict. A failed startup or liveness probe asks for the end of the run."""
    if name == "readiness":
        return replace(known, ready=verdict)
    if not verdict:
        return replace(known, unhealthy=f"failed its {name} probe")
    if name == "startup":
        return replace(known, started=True, ready="readiness" not in probes(container))
    return known


def probes(container: Container) -> dict[ProbeName, Probe]:
    return {name: _probe(name, container[f"{name}Probe"]) for name in NAMES if container.get(f"{name}Probe")}


def _probe(name: ProbeName, spec: Mapping[str, Any]) -> Probe:
    return Probe(
        name=name,
        handler=spec,
        initial_delay_s=float(spec.get("initialDelaySeconds") or 0),
        timeout_s=float(spec.get("timeoutSeconds") or 1),
        period_s=float(spec.get("periodSeconds") or 10),
        successes=int(spec.get("successThreshold") or 1),
        failures=int(spec.get("failureThreshold") or 3),
    )


def first_delay(probe: Probe, age_s: float) -> float:
    """Seconds until a probe is asked for the first time, for a container of this age."""
    return 0.0 if probe.eager else max(0.0, probe.initial_delay_s - age_s)


def next_delay(probe: Probe, tally: Tally, took_s: float) -> float:
    """Seconds until it is asked again, after an answer that took this long."""
    if probe.eager and tally.verdict is not True and tally.successes == 0:
        return min(max(EAGER_S, EAGER_RATIO * took_s), probe.period_s)
    return probe.period_s


def observe(probe: Probe, tally: Tally, *, success: bool, age_s: float) -> Tally:
    """The tally after an answer at this age of the container."""
    if success:
        successes = tally.successes + 1
        verdict = True if successes >= probe.successes else tally.verdict
        return Tally(verdict, successes, 0, age_s)
    if age_s < probe.initial_delay_s:
        return replace(tally, successes=0)
    too_soon = tally.counted_at is not None and age_s - tally.counted_at < probe.period_s * 0.9
    if too_soon and tally.verdict is None:
        return replace(tally, successes=0)
    failures = tally.failures + 1
    verdict = False if failures >= probe.failures else tally.verdict
    return Tally(verdict, 0, failures, age_s)

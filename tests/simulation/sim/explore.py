"""Which schedules are run: all single faults, all pairs, random mixes; and how a failing one is made short.

What may live here: the choosing of schedules. Pure, but for running those it is asked to try.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random

from simulation.sim.faults import CATALOGUE, Fault
from simulation.sim.run import Result, Schedule

Try = Callable[[Schedule], Result]


def possible(result: Result) -> list[Fault]:
    """Every fault that could have happened in a recorded run, in the order of its points."""
    return [Fault(place, nth, kind.name) for place, nth, sort in result.points for kind in CATALOGUE[sort]]


def singles(recorded: Result) -> Iterator[Schedule]:
    for fault in possible(recorded):
        yield replace(recorded.schedule, faults=(fault,))


def after(recorded: Result, fault: Fault) -> list[Fault]:
    """The faults that can follow `fault` in a run that had it."""
    found = possible(recorded)
    at = next((index for index, each in enumerate(found) if (each.place, each.nth) == (fault.place, fault.nth)), -1)
    rest = found[at + 1 :]
    return [each for each in rest if (each.place, each.nth) != (fault.place, fault.nth)]


def swarm(scenario: str, first: int, count: int) -> Iterator[Schedule]:
    return (Schedule(scenario, seed, swarm=True) for seed in range(first, first + count))


def groups(schedule: Schedule) -> list[str]:
    """The letters of the groups that the faults of a schedule belong to."""
    kinds = {(sort, kind.name): kind.group for sort, found in CATALOGUE.items() for kind in found}
    return [kinds[fault.place.partition(" ")[0], fault.kind] for fault in schedule.faults]


def pairs(singles: list[Schedule], chance: Random) -> Iterator[Schedule]:
    """Two faults drawn from those that may happen alone, without end."""
    while len(singles) > 1:
        first, second = chance.sample(singles, 2)
        yield replace(first, faults=(*first.faults, *second.faults))


def by_turns(*sources: Iterable[Schedule]) -> Iterator[Schedule]:
    """One of each, until all are at their end."""
    for each in itertools.zip_longest(*sources):
        yield from (schedule for schedule in each if schedule is not None)


def explicit(result: Result) -> Schedule:
    """The schedule with the faults it drew written out."""
    return replace(result.schedule, faults=result.taken, swarm=False)


def shortest(result: Result, attempt: Try, limit: int = 400) -> Result:
    """Leave out faults, and then the seed, while the same invariant is still violated."""
    best = attempt(explicit(result))
    if best.invariant != result.invariant:
        return result  # it depends on more than its faults: the drawn one is the shortest there is
    tried = 1
    size = max(len(best.schedule.faults) // 2, 1)
    while size and tried < limit:
        shorter = None
        for begin in range(0, len(best.schedule.faults), size):
            kept = best.schedule.faults[:begin] + best.schedule.faults[begin + size :]
            found = attempt(replace(best.schedule, faults=kept))
            tried += 1
            if found.invariant == result.invariant:
                shorter = found
                break
        if shorter is not None:
            best = shorter
        else:
            size //= 2
    calm = attempt(replace(best.schedule, seed=0)) if best.schedule.seed else best
    return calm if calm.invariant == result.invariant else best

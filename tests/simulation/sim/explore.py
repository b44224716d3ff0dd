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
from simulation.sim.scenarios import SCENARIOS

Try = Callable[[Schedule], Result]


def possible(result: Result) -> list[Fault]:
    """Every fault that could have happened in a recorded run, in the order of its points."""
    return [Fault(place, nth, kind.name) for place, nth, sort in result.points for kind in CATALOGUE[sort]]


def singles(recorded: Result) -> Iterator[Schedule]:
    for fault in possible(recorded):
        yield replace(recorded.schedule, faults=(fault,))


def sample(every: int, first: int) -> Callable[[Fault], bool]:
    """Every n-th fault, and each kind at each class of places once: a change of the scenario cannot take one out of the sample."""
    turns, known = itertools.count(first), set[tuple[str, str]]()

    def takes(fault: Fault) -> bool:
        kind = (fault.place.partition(" ")[0], fault.kind)
        new = kind not in known
        known.add(kind)
        return next(turns) % every == 0 or new

    return takes


def behind(recorded: Result, sort: str) -> Iterator[Schedule]:
    """Each kind of fault at the first place of a class, in a run like the recorded one: for places that only a fault leads to."""
    place, nth = next((place, nth) for place, nth, found in recorded.points if found == sort)
    for kind in CATALOGUE[sort]:
        yield replace(recorded.schedule, faults=(*recorded.schedule.faults, Fault(place, nth, kind.name)))


def kind_of(fault: Fault) -> str:
    """Class of places and kind."""
    return f"{fault.place.partition(' ')[0]} {fault.kind}"


def point_of(fault: Fault) -> str:
    """Fault point: place and kind, whichever passing."""
    return f"{fault.place} {fault.kind}"


def every_pair(faults: list[Fault], chance: Random) -> Iterator[tuple[Fault, Fault]]:
    """Every two faults of different points once, in an order of chance's; but first one example of every two kinds."""
    count = len(faults)
    order = [at for at in range(count * count) if at // count < at % count]
    chance.shuffle(order)
    known = set[tuple[str, str]]()
    rest = []
    for at in order:
        first, second = faults[at // count], faults[at % count]
        if (first.place, first.nth) == (second.place, second.nth):
            continue
        kinds = (kind_of(first), kind_of(second))
        if kinds in known:
            rest.append(at)
        else:
            known.add(kinds)
            yield first, second
    yield from ((faults[at // count], faults[at % count]) for at in rest)


def swarm(scenario: str, first: int, count: int) -> Iterator[Schedule]:
    """Random mixes; of a scenario with trouble of its own only the seeds differ."""
    return (Schedule(scenario, seed, swarm=not SCENARIOS[scenario].calm) for seed in range(first, first + count))


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

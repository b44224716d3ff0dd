"""Sets of completion indexes, written as Kubernetes does: "1,3-5". Pure."""

from __future__ import annotations

from collections.abc import Iterable


def parse(text: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def render(indexes: Iterable[int]) -> str:
    """Two in a row stay apart ("0,1"), three and more become a range ("0-2")."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)

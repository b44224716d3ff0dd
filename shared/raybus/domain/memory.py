"""Remembers answers of pure functions, so that a group of 500 workers is built once and a spec is checked once.

Pure: a memory of answers, not of state. Losing it changes nothing but the time that the next answer takes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
SIZE = 4096


class Memory(Generic[T]):
    """The last `size` answers by key. What it gives out is shared: never modify it."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._known: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        answer = self._known[key] = make()
        if len(self._known) > self._size:
            self._known.popitem(last=False)
        return answer

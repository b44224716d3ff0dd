"""Remembers what was built, so that a group of 500 workers is built once. Pure: a memory of answers, not of state."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any

Json = Mapping[str, Any]
SIZE = 4096


class Templates:
    """The last `size` answers by key. What it gives out is shared: never modify it."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._known: OrderedDict[Hashable, Json] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Json]) -> Json:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = make()
            if len(self._known) > self._size:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return found

"""What has been said of an object in its present version, so that what rests is not said again with every look at it. Pure.

The memory lasts as long as the object is known. After a restart of the process, or where a tree comes back from another replica,
it may be said once more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raybus.decide.tree import RootKey

OBJECTS_MAX = 20_000
WORDS_MAX = 32  # of one object


@dataclass(slots=True)
class _Version:
    of: tuple[str, int]  # uid and generation
    words: OrderedDict[tuple[str, ...], None] = field(default_factory=OrderedDict)


class Told:
    def __init__(self, objects_max: int = OBJECTS_MAX) -> None:
        self._objects_max = objects_max
        self._versions: OrderedDict[RootKey, _Version] = OrderedDict()

    def news(self, key: RootKey, regarding: Mapping[str, Any], *words: str) -> bool:
        """Whether these words about `regarding`, an object of this tree, are said for the first time; they count as said then."""
        meta = regarding.get("metadata") or regarding
        of = (str(meta.get("uid") or ""), int(meta.get("generation") or 0))
        version = self._versions.get(key)
        if version is None or version.of != of:
            version = self._versions[key] = _Version(of)
        self._versions.move_to_end(key)
        if words in version.words:
            return False
        version.words[words] = None
        if len(version.words) > WORDS_MAX:
            version.words.popitem(last=False)
        if len(self._versions) > self._objects_max:
            self._versions.popitem(last=False)
        return True

    def forget(self, key: RootKey) -> None:
        self._versions.pop(key, None)

    def drop(self, predicate: Callable[[RootKey], bool]) -> None:
        """Forget the trees of which the predicate holds."""
        for key in [key for key in self._versions if predicate(key)]:
            del self._versions[key]

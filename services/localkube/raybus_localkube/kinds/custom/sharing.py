"""One copy of equal parts of schemas: the pod template stands in the four definitions more than twenty times. Pure."""

from __future__ import annotations

from typing import Any

LIMIT = 100_000
"""Parts that are remembered; beyond it sharing starts anew, which costs memory and nothing else."""


class Sharing:
    """Equal dicts and lists become the same object. What comes out must not be changed."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def share(self, value: Any) -> Any:
        if isinstance(value, dict):
            shared = {
                key: self.share(item)
                for key, item in value.items()
                if key != "description" or not isinstance(item, str)
            }
            mark: Any = tuple(
                (key, id(item) if isinstance(item, (dict, list)) else (type(item), item))
                for key, item in shared.items()
            )
            return self._remember(mark, shared)
        if isinstance(value, list):
            items = [self.share(item) for item in value]
            mark = ("list", *(id(item) if isinstance(item, (dict, list)) else (type(item), item) for item in items))
            return self._remember(mark, items)
        return value

    def _remember(self, mark: Any, value: Any) -> Any:
        found = self._known.get(mark)
        if found is None:
            if len(self._known) >= LIMIT:
                self._known.clear()
            found = self._known[mark] = value
        return found


SCHEMAS = Sharing()

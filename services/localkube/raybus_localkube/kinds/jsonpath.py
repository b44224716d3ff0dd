"""The JSONPath of printer columns: fields, indexes, filters by equality. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

TOKEN = re.compile(
    r"""\.([\w\0-]+|\*) | \['([^']*)'\] | \["([^"]*)"\] | \[(\*|-?\d+)\] | \[\?\(\s*@((?:\.[\w-]+)+)\s*==\s*(?:'([^']*)'|"([^"]*)"|(\w+))\s*\)\]""",
    re.VERBOSE,
)
Step = tuple[str, Any]


@lru_cache(maxsize=512)
def parse(text: str) -> tuple[Step, ...]:
    """The steps of a path. ValueError if it is none we know."""
    source = text.strip().removeprefix("{").removesuffix("}").replace(r"\.", "\0")
    source = source.removeprefix("$")
    source = source if source.startswith((".", "[")) else f".{source}"
    steps: list[Step] = []
    position = 0
    while position < len(source):
        found = TOKEN.match(source, position)
        if found is None:
            raise ValueError(f"unsupported JSONPath: {text}")
        steps.append(step(found))
        position = found.end()
    return tuple(steps)


def step(found: re.Match[str]) -> Step:
    groups = found.groups()
    name = next((g for g in groups[:3] if g is not None), None)
    if name is not None:
        return ("each", None) if name == "*" else ("field", name.replace("\0", "."))
    if groups[3] is not None:
        return ("each", None) if groups[3] == "*" else ("index", int(groups[3]))
    wanted = next(g for g in groups[5:8] if g is not None)
    return ("filter", (groups[4].strip(".").split("."), wanted))


def find(value: Any, text: str) -> list[Any]:
    """Everything the path leads to."""
    found = [value]
    for kind, argument in parse(text):
        found = [hit for item in found for hit in follow(item, kind, argument)]
    return found


def follow(item: Any, kind: str, argument: Any) -> list[Any]:
    if kind == "field":
        return [item[argument]] if isinstance(item, dict) and argument in item else []
    if kind == "each":
        return list(item.values()) if isinstance(item, dict) else list(item) if isinstance(item, list) else []
    if not isinstance(item, list):
        return []
    if kind == "index":
        return [item[argument]] if -len(item) <= argument < len(item) else []
    path, wanted = argument
    return [entry for entry in item if matches(entry, path, wanted)]


def matches(entry: Any, path: list[str], wanted: str) -> bool:
    for name in path:
        if not isinstance(entry, dict) or name not in entry:
            return False
        entry = entry[name]
    text = {True: "true", False: "false"}.get(entry, str(entry)) if isinstance(entry, bool) else str(entry)
    return text == wanted

"""The page docs/reference/values.md: what deploy/helm/raybus/values.yaml says of its values, in comments that begin with `# --`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

VALUES = Path(__file__).resolve().parents[1] / "deploy" / "helm" / "raybus" / "values.yaml"
_LINE = re.compile(r"^(?P<indent> *)(?:# -- (?P<about>.+)|(?P<key>[A-Za-z][\w-]*):.*)$")
_STEP = 2  # of the indentation


ABOUT = (
    "`helm install --set NAME=VALUE`, or a file with `--values`. The chart refuses what it does not know, and says which value it is.",
    "[Installation](../how-to/install.md) shows the usual ones at work; [settings](settings.md) are also there one by one.",
)


class Value(NamedTuple):
    """`path` is how --set names it; `default` as YAML would show it on one line."""

    path: str
    default: str
    about: str


def documented(text: str) -> Iterator[Value]:
    """Each value with a comment, in the order of the file."""
    values = yaml.safe_load(text)
    path: list[str] = []
    about = ""
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        if found["about"]:
            about = found["about"]
            continue
        path = [*path[: len(found["indent"]) // _STEP], found["key"]]
        if about:
            yield Value(".".join(path), _shown(_at(values, path)), about)
        about = ""


def _at(values: Any, path: list[str]) -> Any:
    for key in path:
        values = values[key]
    return values


def _shown(value: Any) -> str:
    return "" if value == "" else json.dumps(value)


def tables() -> list[str]:
    """The lines below the page's title: a table per value of the first level that has others in it, one for the rest."""
    groups: dict[str, list[Value]] = {}
    for value in documented(VALUES.read_text()):
        first, _, rest = value.path.partition(".")
        groups.setdefault(first if rest else "", []).append(value)
    lines = _table(groups.pop("", []))
    for name, values in groups.items():
        lines += [f"## {name}", "", *_table(values)]
    return lines


def _table(values: list[Value]) -> list[str]:
    rows = [f"| `{v.path}` | {_code(v.default)} | {_cell(v.about)} |" for v in values]
    return ["| value | default | meaning |", "| --- | --- | --- |", *rows, ""]


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")

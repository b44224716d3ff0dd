"""What a PromQL expression speaks of, as far as tests need it: names of metrics and the labels they are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator

_METRIC = re.compile(r"\b((?:raybus|kuberay|rest_client|process)_[a-z_]+|up)\b(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_IN_QUOTES = re.compile(r'"[^"]*"')


def metrics(expr: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Each metric of an expression with the labels its selector names."""
    for name, selector in _METRIC.findall(_GROUPING.sub(" ", expr)):
        yield name, frozenset(_MATCHER.findall(selector))


def grouped(expr: str) -> frozenset[str]:
    """The labels that aggregations and matchings name."""
    lists = _GROUPING.findall(_IN_QUOTES.sub('""', expr))
    return frozenset(label.strip() for found in lists for label in found.split(",") if label.strip())

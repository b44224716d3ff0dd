"""Reading log files of containers (format: raybus_localkube.node.logs), as `kubectl logs` asks for them.

Pure. From bytes of a log file to the bytes of an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from raybus.domain import times

_FALSE = ("", "0", "f", "false")


class BadQuery(Exception):
    """A parameter that cannot be read; the text names it."""


@dataclass(frozen=True, slots=True)
class Query:
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: datetime | None = None
    limit: int | None = None


def parse_query(query: Mapping[str, str], now: datetime) -> Query:
    """Raises BadQuery."""
    since = times.parse(query.get("sinceTime"))
    seconds = _number(query, "sinceSeconds", 1)
    if seconds is not None:
        since = datetime.fromtimestamp(now.timestamp() - seconds, now.tzinfo)
    return Query(
        follow=_flag(query, "follow"),
        previous=_flag(query, "previous"),
        timestamps=_flag(query, "timestamps"),
        tail=_number(query, "tailLines", 0),
        since=since,
        limit=_number(query, "limitBytes", 1),
    )


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() not in _FALSE


def _number(query: Mapping[str, str], name: str, least: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not text.isdigit() or int(text) < least:
        raise BadQuery(f"{name}: must be a number of at least {least}, not {text!r}")
    return int(text)


def select(lines: list[bytes], query: Query) -> list[bytes]:
    """The log lines (each with its line end) that `tailLines` and `since` leave. A line in pieces counts once."""
    chosen = [line for line in lines if is_recent(line, query)]
    if query.tail is None:
        return chosen
    starts = [index for index in range(len(chosen)) if index == 0 or not _is_piece(chosen[index - 1])]
    return chosen[starts[-query.tail] :] if 0 < query.tail <= len(starts) else chosen if query.tail else []


def is_recent(line: bytes, query: Query) -> bool:
    if query.since is None:
        return True
    moment = times.parse(line.partition(b" ")[0].decode(errors="replace")[:26] + "+00:00")
    return moment is None or moment >= query.since


def _is_piece(line: bytes) -> bool:
    parts = line.split(b" ", 3)
    return len(parts) > 2 and parts[2] == b"P"


def render(lines: Iterable[bytes], query: Query, *, in_line: bool = False) -> Iterator[bytes]:
    """The text of log lines; `in_line`: the piece before belonged to the same line."""
    for line in lines:
        parts = line.rstrip(b"\n").split(b" ", 3)
        if len(parts) < 3:
            continue
        text = parts[3] if len(parts) > 3 else b""
        stamp = parts[0] + b" " if query.timestamps and not in_line else b""
        in_line = parts[2] == b"P"
        yield stamp + text + (b"" if in_line else b"\n")

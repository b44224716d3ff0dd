"""Log files of containers, in the format of the Kubernetes container runtime interface, with a size limit.

A line is `<time> <stdout|stderr> <F|P> <text>`; P marks a piece of a longer line. A full file becomes `<name>.1`, replacing the one before.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

FILE_MAX = 10 * 1024 * 1024
PIECE_MAX = 16 * 1024


def stamp(seconds: float) -> str:
    """RFC 3339 with nine digits, UTC, as container runtimes write it."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


def frame(chunk: bytes, rest: bytes, stream: str, seconds: float, *, end: bool = False) -> tuple[bytes, bytes]:
    """(log lines, what is left of an unfinished line) for a chunk of output after the `rest` of the chunk before."""
    head = f"{stamp(seconds)} {stream} ".encode()
    whole = rest + chunk
    lines = whole.split(b"\n")
    left = lines.pop()
    out: list[bytes] = []
    for line in lines:
        pieces = [line[at : at + PIECE_MAX] for at in range(0, len(line), PIECE_MAX)] or [b""]
        out += [head + b"P " + piece + b"\n" for piece in pieces[:-1]]
        out.append(head + b"F " + pieces[-1] + b"\n")
    while len(left) > PIECE_MAX:
        out.append(head + b"P " + left[:PIECE_MAX] + b"\n")
        left = left[PIECE_MAX:]
    if end and left:
        out.append(head + b"P " + left + b"\n")
        left = b""
    return b"".join(out), left


class LogFile:
    """Appends the output of one container."""

    def __init__(self, path: str, limit: int = FILE_MAX) -> None:
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._limit = limit
        self._rest: dict[str, bytes] = {}
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o640)
        self._size = os.fstat(self._fd).st_size

    def write(self, stream: str, chunk: bytes, seconds: float) -> None:
        """`chunk` empty: the stream has ended."""
        lines, self._rest[stream] = frame(chunk, self._rest.get(stream, b""), stream, seconds, end=not chunk)
        if not lines:
            return
        if self._size and self._size + len(lines) > self._limit:
            os.close(self._fd)
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._open()
        os.write(self._fd, lines)
        self._size += len(lines)

    def close(self) -> None:
        os.close(self._fd)

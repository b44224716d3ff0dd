"""Cuts a stream of bytes into lines, whatever the pieces it comes in. Pure."""

from __future__ import annotations


class LineTooLongError(ValueError):
    """A line exceeds what its reader is willing to keep."""


class LineSplitter:
    """Lines end in a line feed, which is not part of them. One of more than `line_max` bytes raises LineTooLongError."""

    def __init__(self, line_max: int) -> None:
        self._line_max = line_max
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        lines = chunk.split(b"\n")
        tail = lines.pop()
        if lines and self._parts:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts.clear()
            self._size = 0
        if tail:
            self._parts.append(tail)
            self._size += len(tail)
        if self._size > self._line_max or any(len(line) > self._line_max for line in lines):
            raise LineTooLongError(f"a line is longer than {self._line_max} bytes")
        return lines

    def rest(self) -> bytes:
        """What came after the last line feed."""
        return b"".join(self._parts)

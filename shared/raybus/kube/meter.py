"""What a client tells about its requests to whoever counts them. Pure."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """Called once per request, in the event loop: it must be quick and must not raise. Times are seconds."""

    def waited(self, method: str, seconds: float) -> None:
        """A request waited so long for its place before it was sent."""
        ...

    def answered(self, method: str, status: int, seconds: float) -> None:
        """An exchange is over; `status` 0: without an answer. Of a watch it is the beginning that counts."""
        ...

    def carried(self, method: str, sent: int, received: int) -> None:
        """Sizes of an exchange's two bodies, in bytes. Watches have none."""
        ...

    def repeated(self, method: str, status: int) -> None:
        """A request is sent once more because of this answer."""
        ...


class NoMeter:
    """For clients whose requests nobody counts."""

    def waited(self, method: str, seconds: float) -> None:
        pass

    def answered(self, method: str, status: int, seconds: float) -> None:
        pass

    def carried(self, method: str, sent: int, received: int) -> None:
        pass

    def repeated(self, method: str, status: int) -> None:
        pass

"""Time and chance, handed in, so that a simulation can replace both."""

from __future__ import annotations

import secrets
import uuid
from datetime import UTC, datetime
from typing import Protocol

from raybus.domain.identity import ALPHABET, SUFFIX_LENGTH


class Environment(Protocol):
    def now(self) -> datetime:
        """The time, tz-aware, UTC."""

    def uid(self) -> str:
        """A fresh UUID."""

    def suffix(self) -> str:
        """The five characters behind a generateName."""

    def pick(self, limit: int) -> int:
        """A number from 0 to below `limit`."""


class RealEnvironment:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def uid(self) -> str:
        return str(uuid.uuid4())

    def suffix(self) -> str:
        return "".join(secrets.choice(ALPHABET) for _ in range(SUFFIX_LENGTH))

    def pick(self, limit: int) -> int:
        return secrets.randbelow(limit)


def timestamp(when: datetime) -> str:
    """RFC 3339 with whole seconds, as metadata has it."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

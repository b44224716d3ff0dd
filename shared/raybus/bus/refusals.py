"""What NATS refuses, in words: connections, and what a user has no right to. Of the latter the server answers a request with nothing at all, and says so beside it.

Without this a missing right would look like a server that is slow: here the request that waits learns of it at once.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Sequence

import nats.errors
import structlog

from raybus.bus.transport import NotAllowed

log = structlog.get_logger(__name__)

SHOWN_S = 60.0
_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE)


class Refusals:
    """Those of one connection. `user` is for people: whose rights are too narrow."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._asking: dict[str, list[asyncio.Timeout]] = {}
        self._last = ("", float("-inf"))
        self.count = 0

    @property
    def recent(self) -> str:
        """The last one in words, for a minute; else empty."""
        text, when = self._last
        return text if _now() - when < SHOWN_S else ""

    def hear(self, error: Exception) -> bool:
        """Whether `error` is a refusal: then whoever waits for an answer on that subject is told."""
        found = _VIOLATION.search(str(error))
        if found is None:
            return False
        verb, subject = found.groups()
        # The library hands the server's words over in small letters.
        waiting = [asked for asked in self._asking if asked.lower() == subject.lower()]
        named = waiting[0] if waiting else subject
        text = self.text(f"{verb.lower().replace('subscription', 'subscribe')} to {named}")
        self.count += 1
        self._last = (text, _now())
        log.error("nats_refused", what=text, remedy="give the user the rights of docs/reference/nats-permissions.md")
        for scope in (scope for asked in waiting for scope in self._asking[asked]):
            scope.reschedule(_now())
        return True

    def text(self, what: str) -> str:
        return f"NATS refused to {self._user}: {what}"

    def asking(self, subject: str) -> asyncio.Timeout:
        """The scope in which an answer on `subject` is waited for; give it back with `answered`."""
        scope = asyncio.timeout(None)
        self._asking.setdefault(subject, []).append(scope)
        return scope

    def answered(self, subject: str, scope: asyncio.Timeout) -> None:
        scopes = self._asking[subject]
        scopes.remove(scope)
        if not scopes:
            del self._asking[subject]

    def error(self, subject: str) -> NotAllowed:
        return NotAllowed(self.text(f"publish to {subject}"))


def refused(trouble: Exception) -> bool:
    """Whether a server is there, and either side does not accept the other."""
    known = nats.errors.AuthorizationError | ssl.SSLCertVerificationError
    return isinstance(trouble, known) or "authorization violation" in str(trouble).lower()


def told_last(before: Exception | None, now: Exception) -> Exception:
    """Which of two troubles says why there is no connection: a server that refuses somebody says so, and then hangs up."""
    hung_up = isinstance(now, ConnectionResetError | BrokenPipeError | nats.errors.UnexpectedEOF)
    return before if before is not None and refused(before) and hung_up else now


def unreachable(urls: Sequence[str], trouble: Exception | None) -> str:
    """Why there is no connection, and what to do."""
    where = f"NATS at {', '.join(urls)}"
    if isinstance(trouble, ssl.SSLCertVerificationError):
        return f"{where} shows a certificate that is not trusted ({trouble.verify_message}): give the CA of the servers, and a name that the certificate holds"
    if trouble is not None and refused(trouble):
        return f"{where} does not know this user or its key: give the credentials that the servers are configured with, or restart the servers so that they read the present ones"
    if isinstance(trouble, ssl.SSLError | nats.errors.SecureConnRequiredError | nats.errors.SecureConnWantedError):
        return f"{where}: TLS failed ({trouble}): is it tls:// on both sides?"
    if trouble is None or isinstance(trouble, ConnectionError | TimeoutError):
        return f"no NATS server answers at {', '.join(urls)}: is nats-server running?"
    return f"{where} cannot be reached: {trouble or repr(trouble)}"


def _now() -> float:
    return asyncio.get_running_loop().time()

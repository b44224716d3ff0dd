"""What NATS refuses, in words."""

from __future__ import annotations

import asyncio
import logging
import ssl

import nats.errors
import pytest

from raybus.bus.nats import NatsBus
from raybus.bus.refusals import Refusals, refused, told_last, unreachable
from raybus.bus.transport import NotAllowed

URLS = ["tls://nats:4222"]


def violation(subject: str, verb: str = "publish") -> nats.errors.Error:
    """As the client library hands it over: in small letters."""
    return nats.errors.Error(f'nats: permissions violation for {verb} to "{subject.lower()}"')


async def test_who_waits_for_an_answer_learns_of_the_refusal() -> None:
    refusals = Refusals("user rayjob")
    scope = refusals.asking("$JS.API.STREAM.PURGE.RAYJOB")
    other = refusals.asking("$JS.API.STREAM.INFO.RAYJOB")
    waiting = asyncio.create_task(_wait_in(scope))
    await asyncio.sleep(0)
    assert refusals.hear(violation("$JS.API.STREAM.PURGE.RAYJOB"))
    with pytest.raises(TimeoutError):
        await waiting
    assert scope.expired()
    assert other.when() is None
    refusals.answered("$JS.API.STREAM.PURGE.RAYJOB", scope)
    refusals.answered("$JS.API.STREAM.INFO.RAYJOB", other)
    assert refusals.recent == "NATS refused to user rayjob: publish to $JS.API.STREAM.PURGE.RAYJOB"
    assert isinstance(refusals.error("a"), NotAllowed)
    assert refusals.count == 1


async def _wait_in(scope: asyncio.Timeout) -> None:
    async with scope:
        await asyncio.sleep(30)


async def test_a_subscription_that_is_refused_is_told_too() -> None:
    refusals = Refusals("user rayjob")
    assert refusals.hear(violation("ray.>", "subscription"))
    assert refusals.recent == "NATS refused to user rayjob: subscribe to ray.>"


async def test_other_errors_are_none_of_it() -> None:
    refusals = Refusals("user rayjob")
    assert not refusals.hear(nats.errors.SlowConsumerError("s", "r", 1, None))
    assert not refusals.hear(OSError("gone"))
    assert refusals.recent == ""


def _untrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("x")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (None, "no NATS server answers at tls://nats:4222: is nats-server running?"),
        (ConnectionRefusedError("refused"), "no NATS server answers"),
        (_untrusted(), "not trusted (self-signed certificate): give the CA"),
        (nats.errors.AuthorizationError(), "does not know this user or its key"),
        (nats.errors.Error("nats: 'Authorization Violation'"), "does not know this user or its key"),
        (ssl.SSLError("wrong version number"), "TLS failed"),
        (nats.errors.SecureConnRequiredError("required"), "TLS failed"),
        (OSError("name or service not known"), "cannot be reached: name or service not known"),
    ],
)
def test_why_there_is_no_connection(trouble: Exception | None, said: str) -> None:
    assert said in unreachable(URLS, trouble)


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        (nats.errors.AuthorizationError(), True),
        (nats.errors.Error("nats: 'Authorization Violation'"), True),
        (_untrusted(), True),
        (ConnectionRefusedError(), False),
        (nats.errors.UnexpectedEOF(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_refusal_is_not_a_server_that_is_away(trouble: Exception, expected: bool) -> None:
    assert refused(trouble) is expected


def test_what_asyncio_says_of_each_connection_that_became_tls_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    NatsBus("nats://localhost")
    logging.getLogger("asyncio").warning("returning true from eof_received() has no effect when using ssl")
    logging.getLogger("asyncio").warning("a task was destroyed")
    assert caplog.messages == ["a task was destroyed"]


@pytest.mark.parametrize(
    ("now", "is_told"),
    [
        (ConnectionResetError(), False), (BrokenPipeError(), False), (nats.errors.UnexpectedEOF(), False),
        (ConnectionRefusedError(), True), (TimeoutError(), True), (nats.errors.SecureConnRequiredError(), True),
    ],
)  # fmt: skip
def test_a_server_that_hangs_up_has_said_why(now: Exception, is_told: bool) -> None:
    refusal = nats.errors.Error("nats: 'Authorization Violation'")
    assert told_last(refusal, now) is (now if is_told else refusal)
    assert told_last(None, now) is now
    assert told_last(TimeoutError(), now) is now

"""Back-off and parking, as numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raybus.runtime import backoff
from raybus.runtime.backoff import Backoff
from support.scripted import key_of

A = key_of("a")


def test_waiting_doubles_from_50_ms_to_a_minute() -> None:
    waits = [backoff.delay(n) for n in range(1, 14)]

    assert waits[:4] == [0.05, 0.1, 0.2, 0.4]
    assert waits[-1] == 60.0


@given(failures=st.integers(0, 10_000), asked=st.none() | st.floats(0, 1e9))
def test_waiting_is_bounded_and_never_shorter_than_asked_for(failures: int, asked: float | None) -> None:
    wait = backoff.delay(failures, asked)

    assert 0.05 <= wait <= 600
    assert wait >= min(asked or 0, 600)
    assert backoff.delay(failures + 1, asked) >= wait


def test_news_pass_a_long_back_off_after_five_seconds_but_not_what_the_server_asked_for() -> None:
    assert backoff.hold(60.0, None) == 5.0
    assert backoff.hold(0.1, None) == 0.1
    assert backoff.hold(60.0, 30.0) == 30.0


def test_success_begins_anew() -> None:
    waits = Backoff()
    waits.failed(A)
    waits.failed(A)

    waits.succeeded(A)

    assert waits.failed(A) == 0.05


def test_a_key_is_parked_by_crashes_in_a_row_and_that_is_told_once() -> None:
    waits = Backoff(crashes_max=3)

    told = [waits.crashed(A) for _ in range(5)]

    assert told == [False, False, True, False, False]
    assert waits.parked(A)
    assert waits.parked_count == 1


def test_a_pass_that_got_through_takes_a_key_out_of_the_park() -> None:
    waits = Backoff(crashes_max=1)
    waits.crashed(A)

    waits.failed(A)

    assert not waits.parked(A)


def test_dropped_keys_are_forgotten() -> None:
    waits = Backoff(crashes_max=1)
    waits.crashed(A)
    waits.failed(key_of("b"))

    waits.drop(lambda _key: True)

    assert waits.parked_count == 0
    assert waits.failures(key_of("b")) == 0

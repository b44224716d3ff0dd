"""When the API server counts as out of reach, and when it is asked."""

from __future__ import annotations

import asyncio

import pytest

from raybus.kube.errors import NoAnswer
from raybus.kube.reach import ASK_AGAIN_S, IDLE_S, Reach, watching


def test_at_first_it_is_within_reach_and_asked_at_once() -> None:
    reach = Reach()
    assert reach.trouble == ""
    assert reach.ask_in_s(1000.0) == 0.0


def test_a_failure_counts_until_something_is_heard() -> None:
    reach = Reach()
    reach.failed("refused", since=1.0, now=2.0)
    assert reach.trouble == "refused"
    reach.heard(3.0)
    assert reach.trouble == ""


def test_a_late_failure_of_an_early_request_says_nothing() -> None:
    """It hung while the server was away; others were answered since."""
    reach = Reach()
    reach.heard(20.0)
    reach.failed("no answer in 30 s", since=5.0, now=35.0)
    assert reach.trouble == ""


@pytest.mark.parametrize(
    ("code", "within_reach"),
    [(200, True), (403, True), (404, True), (409, True), (429, True), (500, True), (401, False)]
    + [(code, False) for code in (502, 503, 504)],
)
def test_refusals_are_answers(code: int, within_reach: bool) -> None:
    reach = Reach()
    reach.answered(code, "GET /x", since=0.0, now=1.0)
    assert (reach.trouble == "") is within_reach
    assert within_reach or f"GET /x: {code}" in reach.trouble


def test_it_is_asked_when_nothing_was_heard_and_more_often_while_it_is_silent() -> None:
    reach = Reach()
    reach.heard(100.0)
    assert reach.ask_in_s(100.0) == IDLE_S
    assert reach.ask_in_s(104.0) == IDLE_S - 4
    assert reach.ask_in_s(200.0) == 0.0
    reach.failed("refused", since=110.0, now=111.0)
    assert reach.ask_in_s(111.0) == ASK_AGAIN_S


async def test_the_server_is_asked_until_it_answers_then_left_alone() -> None:
    reach = Reach()
    clock = asyncio.get_running_loop().time
    asked = []

    async def ask() -> None:
        asked.append(clock())
        if len(asked) == 1:
            reach.failed("refused", since=clock(), now=clock())
            raise NoAnswer("refused")
        reach.heard(clock())

    async with watching(reach, ask):
        await asyncio.sleep(0.1)
        assert reach.trouble == "refused"
        await asyncio.sleep(ASK_AGAIN_S)
        assert reach.trouble == ""
        assert len(asked) == 2
        assert asked[1] - asked[0] >= ASK_AGAIN_S

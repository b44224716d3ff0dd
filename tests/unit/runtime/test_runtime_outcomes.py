"""What answers mean for an action, and what outcomes mean for the next pass."""

from __future__ import annotations

from typing import Any

import pytest

from raybus.decide.actions import Action, CreatePod, DeletePod, Reconsider
from raybus.decide.outcome import Outcome, Result
from raybus.decide.plan import Plan
from raybus.kube import errors
from raybus.runtime import outcomes
from support.scripted import cluster, pod

C1 = cluster("c1")
CREATE = CreatePod(reason="wanted", body=pod("p", C1))
DELETE = DeletePod(reason="too many", namespace="ns", name="p", uid="u")


@pytest.mark.parametrize(
    ("action", "error", "result"),
    [
        (DELETE, errors.NotFound(404, "NotFound", "x", details={"name": "p"}), Result.GONE),
        (DELETE, errors.NotFound(404, "NotFound", "no such resource"), Result.FAILED),
        (CREATE, errors.NotFound(404, "NotFound", "namespace", details={"name": "ns"}), Result.REFUSED),
        (CREATE, errors.Conflict(409, "Conflict", "quota was updated"), Result.CONFLICT),
        (CREATE, errors.Invalid(422, "Invalid", "spec.containers: Required value"), Result.REFUSED),
        (CREATE, errors.Forbidden(403, "Forbidden", "exceeded quota"), Result.REFUSED),
        (CREATE, errors.Unauthorized(401, "Unauthorized", "token expired"), Result.FAILED),
        (CREATE, errors.TooManyRequests(429, "TooManyRequests", "slow down", 7.0), Result.THROTTLED),
        (CREATE, errors.KubeError(503, "ServiceUnavailable", "starting"), Result.THROTTLED),
        (CREATE, errors.KubeError(500, "InternalError", "boom"), Result.FAILED),
        (CREATE, errors.KubeError(504, "Timeout", "request did not complete"), Result.AMBIGUOUS),
        (CREATE, errors.NoAnswer("reset by peer"), Result.AMBIGUOUS),
        (CREATE, errors.NoAnswer("connection refused", sent=False), Result.FAILED),
    ],
)
def test_each_answer_of_the_server_has_its_meaning(action: Action, error: errors.KubeError, result: Result) -> None:
    outcome = outcomes.of_error(action, error)

    assert outcome.result is result
    assert outcome.message == error.message
    assert outcome.retry_after_s == error.retry_after_s


class TestAlreadyExists:
    def test_ours_is_success_and_comes_with_its_body(self) -> None:
        found = pod("p", C1, uid="u")

        outcome = outcomes.of_existing(CREATE, found)

        assert outcome.ok
        assert outcome.result is Result.ALREADY_SO
        assert outcome.body is found

    def test_one_of_another_owner_is_refused_and_the_owner_named(self) -> None:
        outcome = outcomes.of_existing(CREATE, pod("p", cluster("other"), uid="u"))

        assert outcome.result is Result.REFUSED
        assert "RayCluster other" in outcome.message

    def test_one_that_nobody_controls_is_refused(self) -> None:
        assert outcomes.of_existing(CREATE, pod("p", C1, ownerReferences=[])).result is Result.REFUSED

    def test_ours_that_is_being_deleted_is_not_what_was_asked_for(self) -> None:
        outcome = outcomes.of_existing(CREATE, pod("p", C1, deletionTimestamp="2026-01-01T00:00:00Z"))

        assert outcome.result is Result.CONFLICT


def outcome(result: Result, **fields: Any) -> Outcome:
    return Outcome(action=fields.pop("action", CREATE), result=result, **fields)


class TestVerdict:
    def test_success_asks_for_nothing(self) -> None:
        assert outcomes.verdict([outcome(Result.DONE), outcome(Result.ALREADY_SO)]) == outcomes.Verdict()

    def test_deleting_what_is_gone_is_success(self) -> None:
        assert not outcomes.verdict([outcome(Result.GONE, action=DELETE)]).failed

    def test_the_longest_wait_that_a_server_asked_for_counts(self) -> None:
        verdict = outcomes.verdict(
            [outcome(Result.THROTTLED, retry_after_s=2.0), outcome(Result.THROTTLED, retry_after_s=9.0)]
        )

        assert verdict.failed
        assert verdict.retry_after_s == 9.0

    def test_what_nobody_answered_is_read_again(self) -> None:
        assert outcomes.verdict([outcome(Result.AMBIGUOUS)]).reread

    def test_reconsidering_and_the_step_limit_ask_for_another_pass(self) -> None:
        reconsider = outcome(Result.DONE, action=Reconsider(reason="look again"))

        assert outcomes.verdict([reconsider]).again
        assert outcomes.verdict(outcomes.skipped([CREATE], outcomes.STEP_LIMIT)).again

    def test_after_a_failure_the_back_off_counts_not_the_wish_to_go_on(self) -> None:
        verdict = outcomes.verdict([outcome(Result.FAILED), *outcomes.skipped([CREATE], outcomes.STEP_LIMIT)])

        assert verdict.failed
        assert not verdict.again


class TestFreshRead:
    def test_a_plan_that_asks_for_one_gets_one(self) -> None:
        assert outcomes.needs_fresh_read(Plan(confirm="deletes a worker"), takeover=False) == "deletes a worker"

    def test_creations_need_one_after_a_take_over_only(self) -> None:
        plan = Plan(steps=((CREATE,),))

        assert outcomes.needs_fresh_read(plan, takeover=True)
        assert not outcomes.needs_fresh_read(plan, takeover=False)

    def test_a_plan_without_creations_needs_none(self) -> None:
        assert not outcomes.needs_fresh_read(Plan(), takeover=True)

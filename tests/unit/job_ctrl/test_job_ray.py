"""What job_ctrl asks of Ray: probes that become facts, submissions and stops that become outcomes."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from raybus.decide.actions import RayEndpoint, StopRayJob, SubmitRayJob
from raybus.decide.outcome import Result
from raybus.decide.plan import WatchRayJob
from raybus.decide.tree import Fact, RootKey, Tree
from raybus.kube.errors import NotFound
from raybus.ray.http import Dashboards
from raybus_job_ctrl.act import RayActions
from raybus_job_ctrl.observe import observe
from raybus_job_ctrl.probe import JobProber, RayAccess
from support.fake_ray import FakeHead, FakeRay
from support.rayjobs import ray_job, running


class Secrets:
    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.reads = 0

    async def get(self, kind, namespace, name, *, timeout_s=None):
        self.reads += 1
        if not self.tokens:
            raise NotFound(404, "NotFound", f'secrets "{name}" not found')
        token = self.tokens[0] if len(self.tokens) == 1 else self.tokens.pop(0)
        return {"data": {"auth_token": base64.b64encode(token.encode()).decode()}}


@pytest.fixture
def head() -> FakeHead:
    return FakeHead(session="s1")


@pytest.fixture
async def ray(head: FakeHead) -> AsyncIterator[FakeRay]:
    async with FakeRay(head).serving() as fake:
        yield fake


@pytest.fixture
async def dashboards() -> AsyncIterator[Dashboards]:
    async with Dashboards() as open_ones:
        yield open_ones


def watch(ray: FakeRay, secret: str = "") -> WatchRayJob:
    endpoint = RayEndpoint(address=ray.address, namespace="ml", service="s", auth_secret=secret)
    return WatchRayJob(endpoint=endpoint, submission_id="train-j", token="t1")


async def test_facts_of_a_jobs_life(ray: FakeRay, head: FakeHead, dashboards: Dashboards) -> None:
    access = RayAccess(dashboards, Secrets())
    prober = JobProber(access)
    unknown = await prober.probe(watch(ray))
    assert unknown == {"token": "t1", "session": "s1", "record": None, "error": None, "asked": True}
    submitted = await RayActions(access).submit(submission(ray))
    assert submitted.result is Result.DONE
    pending = await prober.probe(watch(ray))
    assert pending["record"]["status"] == "PENDING"
    assert pending == await prober.probe(watch(ray)), "the same news twice must not wake anybody"
    head.jobs["train-j"].become("SUCCEEDED", "done")
    ended = await prober.probe(watch(ray))
    assert (ended["record"]["status"], ended["record"]["message"], ended["session"]) == ("SUCCEEDED", "done", "s1")
    assert ended["record"]["end_ms"] > 0


async def test_observe_reads_what_the_probe_writes(ray: FakeRay, head: FakeHead, dashboards: Dashboards) -> None:
    access = RayAccess(dashboards, Secrets())
    await RayActions(access).submit(submission(ray))
    head.jobs["train-j"].become("FAILED", "broke")
    value = await JobProber(access).probe(watch(ray))
    facts = {"rayjob/train-j": Fact(value=value, seen_at=datetime(2026, 3, 1, tzinfo=UTC))}
    poll = observe(Tree(key=RootKey("RayJob", "ml", "train"), root=ray_job(running()), facts=facts)).poll
    assert poll is not None
    assert poll.record is not None
    assert (poll.token, poll.session, poll.record.status, poll.record.message) == ("t1", "s1", "FAILED", "broke")
    assert not poll.missing


@pytest.mark.parametrize(("fault", "words"), [("hang", "no answer"), ("down", "503"), ("gone", "502")])
async def test_what_goes_wrong_is_a_fact_too(
    fault: str, words: str, ray: FakeRay, head: FakeHead, dashboards: Dashboards
) -> None:
    if fault == "hang":
        head.hang = True
    elif fault == "down":
        head.up = False
    else:
        ray.default = None
    fact = await JobProber(RayAccess(dashboards, Secrets())).probe(watch(ray))
    assert (fact["record"], fact["session"], fact["asked"]) == (None, "", True)
    assert words in fact["error"]


async def test_a_head_that_changes_between_two_questions_says_nothing(
    ray: FakeRay, head: FakeHead, dashboards: Dashboards
) -> None:
    class Changing(FakeHead):
        @property
        def session(self) -> str:
            self.asked = getattr(self, "asked", 0) + 1
            return f"s{self.asked}"

        @session.setter
        def session(self, _value: str) -> None:
            pass

    ray.default = Changing()
    fact = await JobProber(RayAccess(dashboards, Secrets())).probe(watch(ray))
    assert fact["record"] is None
    assert "the head changed" in fact["error"]


async def test_the_token_is_read_once_and_again_when_it_is_not_accepted(
    ray: FakeRay, head: FakeHead, dashboards: Dashboards
) -> None:
    head.token = "new"
    secrets = Secrets("old", "new")
    prober = JobProber(RayAccess(dashboards, secrets))
    assert "403" in (await prober.probe(watch(ray, "c")))["error"]
    assert (await prober.probe(watch(ray, "c")))["error"] is None
    assert (await prober.probe(watch(ray, "c")))["error"] is None
    assert secrets.reads == 2


async def test_without_a_token_ray_was_not_even_asked(ray: FakeRay, head: FakeHead, dashboards: Dashboards) -> None:
    access = RayAccess(dashboards, Secrets())
    fact = await JobProber(access).probe(watch(ray, "c"))
    assert fact["asked"] is False
    assert "Secret c" in fact["error"]
    assert head.requests == []
    sent = await RayActions(access).submit(dataclasses.replace(submission(ray), endpoint=watch(ray, "c").endpoint))
    assert sent.result is Result.FAILED


def submission(ray: FakeRay) -> SubmitRayJob:
    request = {"entrypoint": "x", "submission_id": "train-j"}
    return SubmitRayJob(endpoint=watch(ray).endpoint, submission_id="train-j", request=request, reason="test")


def stop(ray: FakeRay, limit_s: float = 5.0) -> StopRayJob:
    return StopRayJob(endpoint=watch(ray).endpoint, submission_id="train-j", reason="test", deadline_seconds=limit_s)


async def test_what_becomes_of_a_submission(ray: FakeRay, head: FakeHead, dashboards: Dashboards) -> None:
    act = RayActions(RayAccess(dashboards, Secrets()))
    assert (await act.submit(submission(ray))).result is Result.DONE
    again = await act.submit(submission(ray))
    assert again.result is Result.ALREADY_SO
    assert again.ok
    assert len(head.jobs) == 1
    head.refuse_submit = (400, "TypeError: no such field")
    refused = await act.submit(submission(ray))
    assert (refused.result, refused.message) == (Result.REFUSED, "TypeError: no such field")
    secret = {"entrypoint": "x", "runtime_env": {"env_vars": {"PIN": 1234}}}
    head.refuse_submit = (400, "TypeError: the value 1234 is of type <class 'int'>")
    told = await act.submit(dataclasses.replace(submission(ray), request=secret))
    assert told.message == "TypeError: the value *** is of type <class 'int'>"
    head.refuse_submit = (500, "No available agent to submit job")
    assert (await act.submit(submission(ray))).result is Result.FAILED
    head.hang = True
    assert (await act.submit(submission(ray))).result is Result.AMBIGUOUS


async def test_what_becomes_of_a_stop(ray: FakeRay, head: FakeHead, dashboards: Dashboards) -> None:
    act = RayActions(RayAccess(dashboards, Secrets()))
    assert (await act.stop(stop(ray))).result is Result.ALREADY_SO
    await act.submit(submission(ray))
    assert (await act.stop(stop(ray))).result is Result.DONE
    assert head.jobs["train-j"].status == "STOPPED"
    assert (await act.stop(stop(ray))).result is Result.ALREADY_SO
    head.hang = True
    assert not (await act.stop(stop(ray, 0.2))).ok

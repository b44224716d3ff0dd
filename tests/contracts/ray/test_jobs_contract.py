"""What JobsClient relies on, held against the fake and against a real head."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from raybus.ray import NotFound, Refused
from raybus.ray.http import Dashboards
from raybus.ray.jobs import JobRecord, JobsClient
from support.fake_ray import TERMINAL, FakeHead, FakeRay
from support.real_head import real_head

NEVER_SEEN = "never-seen"


class JobsContract:
    """Each test gets `jobs`, a client of a living head on which nothing else happens."""

    async def reaches(self, jobs: JobsClient, job_id: str, *statuses: str) -> JobRecord:
        for _ in range(600):
            record = await jobs.get(job_id)
            if record.status in statuses:
                return record
            await asyncio.sleep(0.1)
        raise AssertionError(f"{job_id} did not become one of {statuses}: {record}")

    async def ended(self, jobs: JobsClient, job_id: str) -> JobRecord:
        return await self.reaches(jobs, job_id, *TERMINAL)

    async def test_the_session_of_a_head_has_a_name_that_stays(self, jobs: JobsClient) -> None:
        first, second = await jobs.version(), await jobs.version()
        assert first.session
        assert first == second

    async def test_an_unknown_job_is_not_found(self, jobs: JobsClient) -> None:
        with pytest.raises(NotFound):
            await jobs.get(NEVER_SEEN)
        with pytest.raises(NotFound):
            await jobs.stop(NEVER_SEEN)
        with pytest.raises(NotFound):
            await jobs.logs(NEVER_SEEN)
        with pytest.raises(NotFound):
            _ = [frame async for frame in jobs.tail(NEVER_SEEN)]

    async def test_a_job_runs_to_its_end_under_the_given_id(self, jobs: JobsClient) -> None:
        job_id = f"plain-{uuid.uuid4().hex[:6]}"
        request = {"entrypoint": "echo one && echo two", "submission_id": job_id, "metadata": {"k": "v"}}
        assert await jobs.submit(request) == job_id
        record = await self.ended(jobs, job_id)
        assert record.status == "SUCCEEDED"
        assert record.submission_id == job_id
        assert record.entrypoint == "echo one && echo two"
        assert 0 < record.start_time_ms <= record.end_time_ms
        assert "two" in await jobs.logs(job_id)
        assert "two" in "".join([frame async for frame in jobs.tail(job_id)])
        assert job_id in {known.submission_id for known in await jobs.list()}
        await jobs.delete(job_id)
        with pytest.raises(NotFound):
            await jobs.get(job_id)

    async def test_an_id_can_be_used_once(self, jobs: JobsClient) -> None:
        job_id = f"twice-{uuid.uuid4().hex[:6]}"
        await jobs.submit({"entrypoint": "true", "submission_id": job_id})
        with pytest.raises(Refused) as caught:
            await jobs.submit({"entrypoint": "true", "submission_id": job_id})
        assert caught.value.id_in_use
        await self.ended(jobs, job_id)

    async def test_a_malformed_request_is_refused_for_good(self, jobs: JobsClient) -> None:
        with pytest.raises(Refused) as caught:
            await jobs.submit({"entrypoint": "true", "no_such_field": 1})
        assert caught.value.final
        assert "no_such_field" in caught.value.text

    async def test_a_running_job_is_stopped_once_and_is_not_deleted_before(self, jobs: JobsClient) -> None:
        job_id = f"long-{uuid.uuid4().hex[:6]}"
        await jobs.submit({"entrypoint": "sleep 600", "submission_id": job_id})
        await self.reaches(jobs, job_id, "RUNNING")
        with pytest.raises(Refused):
            await jobs.delete(job_id)
        assert await jobs.stop(job_id) is True
        assert (await self.ended(jobs, job_id)).status == "STOPPED"
        for _ in range(300):  # Ray says it will for as long as what watched the job has not ended too
            if await jobs.stop(job_id) is False:
                break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError(f"{job_id} can still be stopped 30 s after it was")
        assert (await jobs.get(job_id)).status == "STOPPED"


class TestFake(JobsContract):
    @pytest.fixture
    async def jobs(self) -> AsyncIterator[JobsClient]:
        head = FakeHead(on_submit="RUNNING")
        async with FakeRay(head).serving() as ray, Dashboards() as dashboards, _played(head):
            yield JobsClient(dashboards, dashboards.at(ray.address, namespace="n", service="s"))


@contextlib.asynccontextmanager
async def _played(head: FakeHead) -> AsyncIterator[None]:
    """Plays the entrypoints of the contract: sleepers run, all others end soon."""

    async def play() -> None:
        while True:
            for job in head.jobs.values():
                if job.status not in TERMINAL and not job.request["entrypoint"].startswith("sleep"):
                    job.logs = "one\ntwo\n"
                    job.become("SUCCEEDED")
            await asyncio.sleep(0.05)

    task = asyncio.create_task(play())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with real_head(tmp_path_factory.mktemp("ray")) as address:
        yield address


@pytest.mark.ray
@pytest.mark.timeout(300)
class TestRealRay(JobsContract):
    @pytest.fixture
    async def jobs(self, address: str) -> AsyncIterator[JobsClient]:
        async with Dashboards() as dashboards:
            # A busy machine is not what is tested: only the fake is held to the operator's own time limits.
            dashboard = dataclasses.replace(dashboards.at(address, namespace="n", service="s"), timeout_s=30.0)
            yield JobsClient(dashboards, dashboard)

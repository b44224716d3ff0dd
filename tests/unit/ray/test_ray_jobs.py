"""How answers of a dashboard, and silence, are told apart. What a real head answers is held in tests/contracts/ray."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web

from raybus.ray import NoAnswer, NotFound, Refused
from raybus.ray.http import Access, Dashboards
from raybus.ray.jobs import JobRecord, JobsClient
from support.fake_ray import FakeHead, FakeRay

Handler = Callable[[web.Request], web.StreamResponse]


@contextlib.asynccontextmanager
async def answering(handler: Handler, **options) -> AsyncIterator[tuple[JobsClient, list[web.Request]]]:
    """A client of a server that answers as `handler` says, and the requests it got."""
    seen: list[web.Request] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        seen.append(request)
        return handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with Dashboards() as ray:
            at = ray.at(f"127.0.0.1:{runner.addresses[0][1]}", namespace="n", service="s", **options)
            yield JobsClient(ray, at), seen
    finally:
        await runner.cleanup()


def text(body: str, status: int = 200) -> Handler:
    return lambda _request: web.Response(status=status, text=body)


async def test_a_record_is_read_and_what_is_null_is_absent() -> None:
    body = '{"status":"RUNNING","start_time":1700000000123,"end_time":null,"message":null,"unknown":{}}'
    async with answering(text(body)) as (jobs, _):
        assert await jobs.get("j") == JobRecord(status="RUNNING", start_time_ms=1700000000123)


@pytest.mark.parametrize("status", [401, 403, 500, 502, 503])
@pytest.mark.parametrize("body", ["words", '{"detail": "x"}', '{"status": "SUCCEEDED"}', ""])
async def test_an_answer_that_is_no_success_is_never_a_job(status: int, body: str) -> None:
    async with answering(text(body, status)) as (jobs, _):
        with pytest.raises(Refused) as caught:
            await jobs.get("j")
    assert caught.value.status == status
    assert body in str(caught.value)


ODD = [
    "not json",
    "[]",
    "{}",
    '{"status": 1}',
    '{"status": ""}',
    '{"status":"RUNNING","start_time":-1}',
    '{"status":"RUNNING","end_time":1.5}',
]


@pytest.mark.parametrize("body", ODD)
async def test_a_success_that_is_no_record_is_an_error_that_shows_it(body: str) -> None:
    async with answering(text(body)) as (jobs, _):
        with pytest.raises(Refused, match="not an answer of the Jobs API"):
            await jobs.get("j")


async def test_404_is_not_found_whatever_stands_in_it() -> None:
    async with answering(text("Job j does not exist", 404)) as (jobs, _):
        with pytest.raises(NotFound):
            await jobs.get("j")


async def test_a_service_that_the_api_server_does_not_find_is_no_answer_about_the_job() -> None:
    body = '{"kind":"Status","reason":"NotFound","message":"services \\"s\\" not found","code":404}'
    async with answering(text(body, 404)) as (jobs, _):
        with pytest.raises(Refused):
            await jobs.get("j")


async def test_an_odd_record_is_shown_without_what_may_be_secret() -> None:
    record = (
        '{"status":"RUNNING","start_time":-1,"runtime_env":{"env_vars":{"A":"hunter2"}},"entrypoint":"login hunter2"}'
    )
    async with answering(text(record)) as (jobs, _):
        with pytest.raises(Refused) as caught:
            await jobs.get("j")
    assert "start_time" in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_what_only_pythons_json_can_read_is_read() -> None:
    """Ray writes with it: a record is not unreadable for a NaN, or for a broken character in the job's last words."""
    body = '{"status":"FAILED","message":"bad \\udcff byte","runtime_env":{"x":NaN}}'
    async with answering(text(body)) as (jobs, _):
        found = await jobs.get("j")
    assert (found.status, found.message) == ("FAILED", "bad ? byte")
    async with answering(text("[" * 100_000)) as (jobs, _):
        with pytest.raises(Refused):
            await jobs.get("j")


async def test_what_fills_a_status_is_bounded() -> None:
    async with answering(text('{"status":"RUNNING","message":"' + "m" * 100_000 + '"}')) as (jobs, _):
        assert len((await jobs.get("j")).message) == 65_536
    async with answering(text('{"status":"' + "R" * 101 + '"}')) as (jobs, _):
        with pytest.raises(Refused):
            await jobs.get("j")


async def test_a_dashboard_cannot_lead_the_operator_about_on_the_api_server() -> None:
    def answer(request: web.Request) -> web.Response:
        if "proxy" in request.path:
            return web.Response(status=307, headers={"Location": "/api/v1/namespaces/kube-system/secrets"})
        return web.json_response({"status": "SUCCEEDED", "message": "secrets"})

    async with answering(answer) as (direct, seen):
        server = direct._dashboard.url
        async with Dashboards(access=lambda: Access(server=server, authorization="Bearer operator")) as ray:
            jobs = JobsClient(ray, ray.at("ignored:8265", namespace="ml", service="s"))
            for ask in (jobs.get("j"), jobs.submit({"entrypoint": "x"})):
                with pytest.raises(Refused, match="307"):
                    await ask
    assert all("proxy" in request.path for request in seen)


SUBMITTED = [
    ('{"job_id":"x"}', 200, "x"),
    ('{"job_id":"x","submission_id":"y"}', 200, "y"),
]


@pytest.mark.parametrize(("body", "status", "job_id"), SUBMITTED)
async def test_a_submission_that_was_taken(body: str, status: int, job_id: str) -> None:
    async with answering(text(body, status)) as (jobs, seen):
        assert await jobs.submit({"entrypoint": "x", "submission_id": "y"}) == job_id
    assert seen[0].path == "/api/jobs/"
    assert seen[0].headers["Content-Type"] == "application/json"
    assert await seen[0].json() == {"entrypoint": "x", "submission_id": "y"}


REFUSALS = [
    (500, "ValueError: Please use a different submission_id.", True, False),
    (500, "FileExistsError: /tmp/package already exists", False, False),
    (500, "No available agent to submit job, please try again later.", False, False),
    (400, "TypeError: no such field", False, True),
    (401, "Unauthorized", False, False),
    (403, "Forbidden", False, False),
    (429, "slow down", False, False),
    (200, "hello", False, False),
]


@pytest.mark.parametrize(("status", "body", "in_use", "final"), REFUSALS)
async def test_refusals_of_a_submission(status: int, body: str, *, in_use: bool, final: bool) -> None:
    async with answering(text(body, status)) as (jobs, _):
        with pytest.raises(Refused) as caught:
            await jobs.submit({"entrypoint": "x"})
    assert (caught.value.id_in_use, caught.value.final) == (in_use, final)
    assert body in str(caught.value)


async def test_stopping() -> None:
    head = FakeHead(on_submit="RUNNING")
    async with FakeRay(head).serving() as fake, Dashboards() as ray:
        jobs = JobsClient(ray, ray.at(fake.address, namespace="n", service="s"))
        await jobs.submit({"entrypoint": "x", "submission_id": "j"})
        assert await jobs.stop("j") is True
        assert await jobs.stop("j") is False
        with pytest.raises(NotFound):
            await jobs.stop("k")


async def test_a_job_that_is_not_stopped_and_goes_on_is_an_error() -> None:
    def answer(request: web.Request) -> web.Response:
        return web.json_response({"stopped": False} if request.method == "POST" else {"status": "RUNNING"})

    async with answering(answer) as (jobs, seen):
        with pytest.raises(Refused):
            await jobs.stop("j")
    assert await seen[0].read() == b""


async def test_ids_are_part_of_the_path_and_nothing_else() -> None:
    async with answering(text('{"status":"RUNNING"}')) as (jobs, seen):
        await jobs.get("a b/../c?d#e%")
    assert seen[0].raw_path == "/api/jobs/a%20b%2F..%2Fc%3Fd%23e%25"


async def test_the_token_comes_in_its_own_header_and_is_not_shown() -> None:
    head = FakeHead(token="hunter2")
    async with FakeRay(head).serving() as fake, Dashboards() as ray:
        with pytest.raises(Refused) as caught:
            await JobsClient(ray, ray.at(fake.address, namespace="n", service="s")).version()
        assert caught.value.status == 401
        at = ray.at(fake.address, namespace="n", service="s", token="hunter2")
        assert "hunter2" not in repr(at)
        jobs = JobsClient(ray, at)
        assert (await jobs.version()).session == head.session
        await jobs.submit({"entrypoint": "x", "submission_id": "j"})
        assert [record.submission_id for record in await jobs.list()] == ["j"]


async def test_silence_and_closed_doors_are_no_answer() -> None:
    head = FakeHead(hang=True)
    async with FakeRay(head).serving() as fake, Dashboards() as ray:
        jobs = JobsClient(ray, ray.at(fake.address, namespace="n", service="s"))
        with pytest.raises(NoAnswer, match="no answer in 2 s"):
            await jobs.get("j")
        closed = fake.address
    async with Dashboards() as ray:
        with pytest.raises(NoAnswer, match=r"/api/.*: cannot connect: Connect call failed"):
            await JobsClient(ray, ray.at(closed, namespace="n", service="s")).get("j")


async def test_one_that_hangs_costs_the_others_nothing() -> None:
    fake = FakeRay()
    fake.heads = {"127.0.0.1": FakeHead()}
    hanging = FakeRay(FakeHead(hang=True))
    async with fake.serving(), hanging.serving(), Dashboards() as ray:
        slow = JobsClient(ray, ray.at(hanging.address, namespace="n", service="s"))
        waiting = [asyncio.create_task(slow.version()) for _ in range(20)]
        quick = JobsClient(ray, ray.at(fake.address, namespace="n", service="s"))
        await quick.version()
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_the_proxy_of_the_environment_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then names of Services need not be known here: the proxy knows them."""
    fake = FakeRay()
    fake.heads = {"c-head-svc.ml.svc.cluster.local": FakeHead(session="far")}
    async with fake.serving():
        monkeypatch.setenv("HTTP_PROXY", f"http://{fake.address}")
        monkeypatch.setenv("http_proxy", f"http://{fake.address}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with Dashboards() as ray:
            at = ray.at("c-head-svc.ml.svc.cluster.local:8265", namespace="ml", service="c-head-svc")
            assert (await JobsClient(ray, at).version()).session == "far"


async def test_through_the_api_server() -> None:
    """The path is the Service's, the credentials are the API server's, and Ray's token travels beside them."""

    def answer(request: web.Request) -> web.Response:
        return web.json_response({"session_name": request.path})

    async with answering(answer) as (direct, seen):
        server = direct._dashboard.url + "/base"
        tokens = iter(["first", "second"])
        async with Dashboards(access=lambda: Access(server=server, authorization=f"Bearer {next(tokens)}")) as ray:
            for _ in range(2):
                at = ray.at("ignored:8265", namespace="ml", service="c-head-svc", token="ray-token")
                assert at.timeout_s == 10
                assert "first" not in repr(at)
                version = await JobsClient(ray, at).version()
                assert version.session == "/base/api/v1/namespaces/ml/services/c-head-svc:dashboard/proxy/api/version"
    assert [request.headers["Authorization"] for request in seen] == ["Bearer first", "Bearer second"]
    assert {request.headers["x-ray-authorization"] for request in seen} == {"Bearer ray-token"}


async def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybus.ray.jobs.BODY_MAX", 6 * 2**20)
    async with answering(text('{"logs": "' + "x" * 5 * 2**20 + '"}')) as (jobs, _):
        with pytest.raises(Refused, match="longer than"):
            await jobs.get("j")
        assert len(await jobs.logs("j")) == 5 * 2**20, "a log may be longer"
    async with answering(text('{"logs": "' + "x" * 7 * 2**20 + '"}')) as (jobs, _):
        with pytest.raises(Refused, match="longer than"):
            await jobs.logs("j")


async def test_a_log_that_is_broken_off_is_told_from_one_that_ended() -> None:
    head = FakeHead(on_submit="RUNNING")
    async with FakeRay(head).serving() as fake, Dashboards() as ray:
        jobs = JobsClient(ray, ray.at(fake.address, namespace="n", service="s"))
        await jobs.submit({"entrypoint": "x", "submission_id": "j"})
        head.jobs["j"].logs = "one\n"
        tail = jobs.tail("j", idle_timeout_s=0.3)
        assert await anext(tail) == "one\n"
        with pytest.raises(NoAnswer):
            await anext(tail)
        head.jobs["j"].logs += "two\n"
        head.jobs["j"].become("SUCCEEDED")
        assert "".join([frame async for frame in jobs.tail("j")]) == "one\ntwo\n"


async def test_the_client_is_used_inside_its_block_only() -> None:
    ray = Dashboards()
    with pytest.raises(RuntimeError):
        await JobsClient(ray, ray.at("h:1", namespace="n", service="s")).version()

"""raybus.kube against an API server (any), and against a scripted one for what a healthy server does not do on request."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
import trustme
from aiohttp import web

from raybus.domain import kinds
from raybus.domain.kinds import CONFIG_MAP, EVENT
from raybus.kube import errors
from raybus.kube.client import KubeClient
from raybus.kube.config import KubeConfig
from raybus.kube.events import EventRecorder
from raybus.kube.listwatch import (
    Bookmark,
    Changed,
    Interrupted,
    ListBegun,
    ListComplete,
    Listed,
    ListWatch,
    ListWatchEvent,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"app": name}}, "data": data}


class Heard:
    """What a ListWatch said, and waiting for it."""

    def __init__(self, watch: ListWatch) -> None:
        self.events: list[ListWatchEvent] = []
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._listen(watch))

    async def _listen(self, watch: ListWatch) -> None:
        async for event in watch:
            self.events.append(event)
            self._changed.set()

    async def until(self, holds: Callable[[list[ListWatchEvent]], bool], timeout_s: float = 15) -> None:
        async with asyncio.timeout(timeout_s):
            while not holds(self.events):
                self._changed.clear()
                await self._changed.wait()

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def names(self, type_: str) -> list[str]:
        return [e.obj["metadata"]["name"] for e in self.events if isinstance(e, Changed) and e.type == type_]

    def count(self, kind: type[ListWatchEvent]) -> int:
        return sum(isinstance(event, kind) for event in self.events)


@contextlib.asynccontextmanager
async def listening(watch: ListWatch) -> AsyncIterator[Heard]:
    heard = Heard(watch)
    try:
        yield heard
    finally:
        await heard.stop()


@contextlib.asynccontextmanager
async def scripted(
    handler: Handler, *, server_tls: ssl.SSLContext | None = None, **config: Any
) -> AsyncIterator[KubeClient]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_tls)
    await site.start()
    port = runner.addresses[0][1]
    scheme = "https" if server_tls else "http"
    try:
        async with KubeClient(KubeConfig(server=f"{scheme}://127.0.0.1:{port}", **config)) as client:
            yield client
    finally:
        await runner.cleanup()


@pytest.mark.kube
class TestObjects:
    async def test_life_of_an_object(self, kube: KubeClient, namespace: str) -> None:
        made = await kube.create(CONFIG_MAP, config_map("a", x="1"), namespace=namespace)
        meta = made["metadata"]
        patched = await kube.merge_patch(
            CONFIG_MAP, namespace, "a", {"data": {"x": "2"}}, uid=meta["uid"], resource_version=meta["resourceVersion"]
        )
        assert patched["data"] == {"x": "2"}
        by_json = await kube.json_patch(
            CONFIG_MAP, namespace, "a", [{"op": "add", "path": "/data/y", "value": "3"}], uid=meta["uid"]
        )
        assert by_json["data"] == {"x": "2", "y": "3"}
        by_json["data"] = {}
        assert not (await kube.replace(CONFIG_MAP, by_json)).get("data")
        await kube.delete(CONFIG_MAP, namespace, "a", uid=meta["uid"])
        with pytest.raises(errors.NotFound) as absent:
            await kube.get(CONFIG_MAP, namespace, "a")
        assert not absent.value.resource_unknown

    async def test_preconditions_are_refused_by_class(self, kube: KubeClient, namespace: str) -> None:
        made = await kube.create(CONFIG_MAP, config_map("a"), namespace=namespace)
        old = made["metadata"]["resourceVersion"]
        await kube.merge_patch(CONFIG_MAP, namespace, "a", {"data": {"x": "1"}})
        with pytest.raises(errors.Conflict):
            await kube.merge_patch(CONFIG_MAP, namespace, "a", {"data": {"x": "2"}}, resource_version=old)
        with pytest.raises(errors.Conflict):
            await kube.merge_patch(CONFIG_MAP, namespace, "a", {"data": {"x": "2"}}, uid="another")
        with pytest.raises(errors.Conflict):
            await kube.delete(CONFIG_MAP, namespace, "a", uid="another")
        operations = [{"op": "add", "path": "/data/x", "value": "3"}]
        with pytest.raises(errors.Invalid):
            await kube.json_patch(CONFIG_MAP, namespace, "a", operations, resource_version=old)
        with pytest.raises(errors.AlreadyExists):
            await kube.create(CONFIG_MAP, config_map("a"), namespace=namespace)
        assert (await kube.get(CONFIG_MAP, namespace, "a"))["data"] == {"x": "1"}

    async def test_pages_are_one_snapshot_and_items_know_their_kind(self, kube: KubeClient, namespace: str) -> None:
        for name in "abcde":
            await kube.create(CONFIG_MAP, config_map(name), namespace=namespace)
        pages = [page async for page in kube.list_pages(CONFIG_MAP, namespace, label_selector="app", page_size=2)]
        assert [len(items) for items, _ in pages] == [2, 2, 1]
        assert len({version for _, version in pages}) == 1
        assert {(item["kind"], item["apiVersion"]) for items, _ in pages for item in items} == {("ConfigMap", "v1")}
        assert len(await kube.list_all(CONFIG_MAP, namespace, label_selector="app in (a,b)")) == 2

    async def test_an_unknown_kind_is_told_from_an_absent_object(self, kube: KubeClient) -> None:
        with pytest.raises(errors.NotFound) as unknown:
            await kube.get(kinds.Kind("nobody.example", "v1", "Thing", "things"), "default", "x")
        assert unknown.value.resource_unknown

    async def test_cluster_uid_is_that_of_kube_system(self, kube: KubeClient) -> None:
        system = await kube.get(kinds.NAMESPACE, None, "kube-system")
        assert await kube.cluster_uid() == system["metadata"]["uid"]


@pytest.mark.kube
class TestListWatch:
    async def test_list_then_changes(self, kube: KubeClient, namespace: str) -> None:
        for name in "abc":
            await kube.create(CONFIG_MAP, config_map(name), namespace=namespace)
        watch = ListWatch(kube, CONFIG_MAP, namespace=namespace, selector="app", page_size=2)
        async with listening(watch) as heard:
            await heard.until(lambda events: any(isinstance(event, ListComplete) for event in events))
            assert isinstance(heard.events[0], ListBegun)
            listed = [o["metadata"]["name"] for e in heard.events if isinstance(e, Listed) for o in e.items]
            assert listed == ["a", "b", "c"]
            await kube.create(CONFIG_MAP, config_map("d"), namespace=namespace)
            await kube.merge_patch(CONFIG_MAP, namespace, "a", {"data": {"x": "1"}})
            await kube.delete(CONFIG_MAP, namespace, "b")
            await kube.merge_patch(CONFIG_MAP, namespace, "c", {"metadata": {"labels": {"app": None}}})
            await heard.until(lambda _: heard.names("DELETED") == ["b", "c"])
            assert heard.names("ADDED") == ["d"]
            assert heard.names("MODIFIED") == ["a"]
            assert heard.count(ListBegun) == 1

    async def test_relist_at_its_period(self, kube: KubeClient, namespace: str) -> None:
        await kube.create(CONFIG_MAP, config_map("a"), namespace=namespace)
        async with listening(ListWatch(kube, CONFIG_MAP, namespace=namespace, relist_s=1)) as heard:
            await heard.until(lambda _: heard.count(ListComplete) >= 2)
        assert heard.count(Interrupted) == 0


@pytest.mark.kube
class TestEvents:
    async def test_repeated_events_are_one_object(self, kube: KubeClient, namespace: str) -> None:
        about = await kube.create(CONFIG_MAP, config_map("a"), namespace=namespace)
        about |= {"apiVersion": "v1", "kind": "ConfigMap"}
        async with EventRecorder(kube, "tester", "tester-host") as events:
            for number in range(5):
                events.record(about, "Normal", "Created", "Create", f"note {number} " + "é" * 2000)
            events.record(about, "Warning", "Failed", "Create", "no")
        found = {e["reason"]: e for e in await kube.list_all(EVENT, namespace) if e["reportingController"] == "tester"}
        assert set(found) == {"Created", "Failed"}
        assert found["Created"]["series"]["count"] == 5
        assert found["Created"]["note"].startswith("note 0 ")
        assert found["Created"]["regarding"]["uid"] == about["metadata"]["uid"]
        assert (events.sent, events.dropped) == (2, 0)

    async def test_a_refused_event_is_dropped_and_counted(self, kube: KubeClient) -> None:
        about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "no-such-namespace"}}
        async with EventRecorder(kube, "tester", "tester-host") as events:
            events.record(about, "Normal", "Created", "Create", "note")
        assert (events.sent, events.dropped) == (0, 1)
        assert "no-such-namespace" in events.last_error


class TestScriptedServer:
    async def test_a_write_whose_answer_is_lost_is_ambiguous(self) -> None:
        arrived = []

        async def hang_up(request: web.Request) -> web.StreamResponse:
            arrived.append(await request.read())
            assert request.transport is not None
            request.transport.close()
            return web.Response()

        async with scripted(hang_up) as client:
            with pytest.raises(errors.NoAnswer) as lost:
                await client.create(CONFIG_MAP, config_map("a"), namespace="n")
        assert lost.value.ambiguous
        assert len(arrived) == 1, "a write is never repeated by the client itself"

    async def test_a_write_that_could_not_leave_is_not_ambiguous(self, unused_tcp_port: int) -> None:
        async with KubeClient(KubeConfig(server=f"http://127.0.0.1:{unused_tcp_port}")) as client:
            with pytest.raises(errors.NoAnswer) as refused:
                await client.create(CONFIG_MAP, config_map("a"), namespace="n")
        assert not refused.value.ambiguous

    async def test_every_request_has_a_deadline(self) -> None:
        async def sleep(_request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(60)
            return web.Response()

        async with scripted(sleep) as client:
            with pytest.raises(errors.NoAnswer, match=r"no answer in 0\.2 s"):
                await client.get(CONFIG_MAP, "n", "a", timeout_s=0.2)

    async def test_credentials_are_read_again_once_after_401(self) -> None:
        seen = []

        async def check(request: web.Request) -> web.StreamResponse:
            seen.append(request.headers.get("Authorization"))
            return web.json_response({"ok": True}, status=200 if seen[-1] == "Bearer new" else 401)

        def refreshed() -> KubeConfig:
            return KubeConfig(server=client.config.server, authorization="Bearer new")

        async with scripted(check, authorization="Bearer old", refresh=refreshed) as client:
            assert await client.request("GET", "/x") == {"ok": True}
            assert seen == ["Bearer old", "Bearer new"]
            assert await client.request("GET", "/x") == {"ok": True}
            assert len(seen) == 3

    async def test_a_refused_refresh_does_not_loop(self) -> None:
        seen = []

        async def never(request: web.Request) -> web.StreamResponse:
            seen.append(request.path)
            return web.json_response({}, status=401)

        def refreshed() -> KubeConfig:
            return KubeConfig(server=client.config.server, authorization="Bearer also-old", refresh=refreshed)

        async with scripted(never, authorization="Bearer old", refresh=refreshed) as client:
            with pytest.raises(errors.Unauthorized):
                await client.request("GET", "/x")
        assert len(seen) == 2

    async def test_error_frames_and_cut_frames(self) -> None:
        watches = []

        async def serve(request: web.Request) -> web.StreamResponse:
            if "watch" not in request.query:
                return web.json_response({"metadata": {"resourceVersion": "5"}, "items": []})
            watches.append(request.query["resourceVersion"])
            response = web.StreamResponse()
            await response.prepare(request)
            frames = [
                {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
                {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}},
            ]
            if len(watches) == 1:
                await response.write(orjson.dumps(frames[0]) + b'\n{"type":"ADD')
            else:
                await response.write(b"".join(orjson.dumps(frame) + b"\n" for frame in frames))
            return response

        async with scripted(serve) as client, listening(ListWatch(client, CONFIG_MAP, namespace="n")) as heard:
            await heard.until(lambda _: heard.count(ListBegun) == 2)
            assert watches[:2] == ["5", "9"], "a cut watch resumes at the last bookmark"
            causes = [type(event.error) for event in heard.events if isinstance(event, Interrupted)]
            assert causes == [errors.NoAnswer, errors.Expired]
            assert heard.count(Bookmark) == 2

    async def test_overload_pauses_new_requests(self) -> None:
        async def busy(_request: web.Request) -> web.StreamResponse:
            return web.json_response({}, status=429, headers={"Retry-After": "1"})

        async with scripted(busy) as client:
            with pytest.raises(errors.TooManyRequests) as refused:
                await client.request("GET", "/x")
            assert refused.value.retry_after_s == 1
            assert client.gate.limit.limit == 8
            with pytest.raises(errors.NoAnswer) as waited:
                await client.request("GET", "/x", timeout_s=0.2)
            assert not waited.value.ambiguous, "it never left"

    async def test_no_more_in_flight_than_the_limit(self) -> None:
        running, most = 0, 0

        async def count(_request: web.Request) -> web.StreamResponse:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            return web.json_response({})

        async with scripted(count) as client:
            await asyncio.gather(*(client.request("GET", "/x") for _ in range(60)))
        assert 8 < most <= 16

    async def test_log_lines_come_while_the_log_is_followed(self) -> None:
        go = asyncio.Event()

        async def log(request: web.Request) -> web.StreamResponse:
            assert request.query["follow"] == "true"
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"one\ntw")
            await go.wait()
            await response.write(b"o\nlast")
            return response

        async with scripted(log) as client:
            lines = client.stream_lines("/api/v1/namespaces/n/pods/p/log", {"follow": True})
            async with contextlib.aclosing(lines):
                assert await anext(lines) == b"one"
                go.set()
                assert [line async for line in lines] == [b"two", b"last"]

    async def test_words_for_people(self, unused_tcp_port: int) -> None:
        async with KubeClient(KubeConfig(server=f"http://127.0.0.1:{unused_tcp_port}")) as client:
            with pytest.raises(
                errors.NoAnswer, match=rf"cannot connect to 127\.0\.0\.1:{unused_tcp_port}: Conn"
            ) as refused:
                await client.request("GET", "/x")
        assert "object at" not in str(refused.value)

    async def test_a_server_of_another_authority_is_refused(self) -> None:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(server)
        ours = ssl.create_default_context()
        trustme.CA().configure_trust(ours)

        async def answer(_request: web.Request) -> web.StreamResponse:
            return web.json_response({})

        async with scripted(answer, server_tls=server, tls=ours) as client:
            with pytest.raises(errors.NoAnswer, match=r"certificate of 127\.0\.0\.1:\d+ is not accepted") as refused:
                await client.request("GET", "/x")
        assert not refused.value.ambiguous

"""Logs, metrics and health as somebody outside sees them."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Iterator
from importlib import metadata

import aiohttp
import orjson
import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from raybus.observe import logging as our_logging
from raybus.observe.health import Check, HealthPortError, HealthServer
from raybus.observe.metrics import PROCESS, ControllerMetrics, ServiceMetrics
from raybus.observe.requests import KubeRequests, RayRequests


@pytest.fixture
def lines() -> Iterator[io.BytesIO]:
    """The log of a configured process; the settings of before are put back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.BytesIO()
    yield stream
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    root.setLevel(level)


class TestLogs:
    def test_a_line_is_json_with_the_fields_of_its_service(self, lines: io.BytesIO) -> None:
        our_logging.configure(service="raycluster", replica="r1", stream=lines)

        our_logging.get_logger(controller="raycluster").info("creating", namespace="ns", name="c1", reason="wanted")

        line = orjson.loads(lines.getvalue())
        assert {"service": "raycluster", "replica": "r1", "level": "info", "event": "creating"}.items() <= line.items()
        assert line["reason"] == "wanted"
        assert line["time"].endswith("Z")

    def test_values_that_are_called_secret_are_hidden(self, lines: io.BytesIO) -> None:
        our_logging.configure(service="s", stream=lines)

        our_logging.get_logger().info("connecting", nats_password="geheim", auth_token="geheim")

        assert b"geheim" not in lines.getvalue()

    def test_lower_levels_are_left_out(self, lines: io.BytesIO) -> None:
        our_logging.configure(service="s", level="warning", stream=lines)

        our_logging.get_logger().info("no")
        our_logging.get_logger().warning("yes")

        assert [orjson.loads(line)["event"] for line in lines.getvalue().splitlines()] == ["yes"]

    def test_an_exception_comes_with_its_stack_in_one_line(self, lines: io.BytesIO) -> None:
        our_logging.configure(service="s", stream=lines)

        try:
            int("bug")
        except ValueError:
            our_logging.get_logger().exception("failed")

        (line,) = lines.getvalue().splitlines()
        assert "ValueError: invalid literal" in orjson.loads(line)["exception"]

    @pytest.mark.parametrize("log_format", ["json", "console"])
    def test_warnings_of_libraries_are_in_the_same_log(
        self, lines: io.BytesIO, log_format: our_logging.LogFormat
    ) -> None:
        our_logging.configure(service="s", log_format=log_format, stream=lines)

        logging.getLogger("aiohttp.server").warning("odd %s", "request")
        logging.getLogger("aiohttp.server").info("chatter")

        assert b"odd request" in lines.getvalue()
        assert b"chatter" not in lines.getvalue()

    async def test_a_late_answer_on_a_closed_connection_is_left_out_and_other_errors_of_the_loop_are_not(
        self, lines: io.BytesIO
    ) -> None:
        our_logging.configure(service="s", stream=lines)
        loop = asyncio.get_running_loop()

        late = RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")
        loop.call_exception_handler({"message": "Fatal error on SSL protocol", "exception": late})
        loop.call_exception_handler({"message": "Fatal error on SSL protocol", "exception": RuntimeError("a bug")})
        loop.call_exception_handler({"message": "Task exception was never retrieved", "exception": late})

        first, second = (orjson.loads(line) for line in lines.getvalue().splitlines())
        assert "RuntimeError: a bug" in first["exception"]
        assert second["event"].startswith("Task exception was never retrieved")


class TestMetrics:
    def test_values_are_read_when_somebody_asks(self) -> None:
        metrics = ServiceMetrics("gateway")
        length = [3]
        metrics.watch("raybus_queue_length", "Due keys.", lambda: length[0])
        assert b"raybus_queue_length 3.0" in metrics.render()

        length[0] = 5
        assert b"raybus_queue_length 5.0" in metrics.render()

    def test_several_values_have_a_label_and_unknown_ones_are_left_out(self) -> None:
        metrics = ServiceMetrics("gateway")
        metrics.watch("raybus_age", "Ages.", lambda: {"Pod": 1.5, "RayCluster": 2.0}, label="kind")
        metrics.watch("raybus_nothing", "Nothing yet.", lambda: None)

        text = metrics.render()

        assert b'raybus_age{kind="Pod"} 1.5' in text
        assert b"raybus_nothing" not in text

    def test_controllers_count_passes_and_actions(self) -> None:
        metrics = ControllerMetrics("raycluster")

        metrics.passes.labels("done").inc()
        metrics.actions.labels("CreatePod", "done").inc(2)

        text = metrics.render()
        assert b'raybus_passes_total{result="done"} 1.0' in text
        assert b'raybus_actions_total{action="CreatePod",result="done"} 2.0' in text

    def test_what_is_shown_is_described_with_its_labels(self) -> None:
        metrics = ControllerMetrics("raycluster")
        metrics.watch("raybus_age", "Ages.", lambda: {"Pod": 1.5}, label="kind")
        metrics.watch("raybus_lost", "Lost ones.", lambda: 1, counter=True)
        metrics.passes.labels("done").inc()
        metrics.pass_seconds.labels("done").observe(0.1)
        metrics.actions.labels("CreatePod", "done").inc()

        shown = {}
        for family in text_string_to_metric_families(metrics.render().decode()):
            labels = {key for sample in family.samples for key in sample.labels if key != "le"}
            shown[family.name] = (family.type, labels, family.documentation)
        ours = {name: about for name, about in shown.items() if name.startswith("raybus_")}

        described = {
            each.name.removesuffix("_total"): (each.type, set(each.labels), each.text) for each in metrics.described
        }
        assert described == ours

    def test_one_value_for_each_of_many_objects_in_the_formats_own_words(self) -> None:
        metrics = ServiceMetrics("any")
        states = {"plain": "Running", "odd": 'a "b" \\ c\nd', "empty": ""}
        metrics.watch_each("kuberay_thing", "Things.", ("name", "state"), states.items, lambda item: [(item, 2.5)])

        (family,) = (f for f in text_string_to_metric_families(metrics.render().decode()) if f.name == "kuberay_thing")
        assert {sample.labels["name"]: sample.labels["state"] for sample in family.samples} == states
        assert {sample.value for sample in family.samples} == {2.5}
        assert (family.type, family.documentation) == ("gauge", "Things.")

    def test_no_series_tells_when_another_one_was_made(self) -> None:
        metrics = ControllerMetrics("raycluster")
        metrics.passes.labels("done").inc()

        assert b"_created" not in metrics.render()

    def test_what_the_process_uses_is_described_as_the_library_shows_it(self) -> None:
        text = ServiceMetrics("gateway").render().decode()

        shown = {
            (f"{found.name}_total" if found.type == "counter" else found.name, found.type, found.documentation)
            for found in text_string_to_metric_families(text)
            if found.name.startswith("process_")
        }
        assert shown == {(each.name, each.type, each.text) for each in PROCESS}

    def test_requests_to_the_api_server_have_the_names_of_kubernetes_clients(self) -> None:
        metrics = ServiceMetrics("gateway")
        requests = KubeRequests(metrics, "10.0.0.1:443")

        requests.waited("GET", 0.3)
        requests.answered("GET", 200, 0.02)
        requests.answered("POST", 0, 40.0)
        requests.carried("GET", 0, 70)
        requests.repeated("GET", 401)

        lines = set(metrics.render().decode().splitlines())
        assert lines >= {
            'rest_client_requests_total{code="200",host="10.0.0.1:443",method="GET"} 1.0',
            'rest_client_requests_total{code="<error>",host="10.0.0.1:443",method="POST"} 1.0',
            'rest_client_request_duration_seconds_bucket{host="10.0.0.1:443",le="0.025",verb="GET"} 1.0',
            'rest_client_request_duration_seconds_bucket{host="10.0.0.1:443",le="30.0",verb="POST"} 0.0',
            'rest_client_request_duration_seconds_count{host="10.0.0.1:443",verb="POST"} 1.0',
            'rest_client_rate_limiter_duration_seconds_bucket{host="10.0.0.1:443",le="0.5",verb="GET"} 1.0',
            'rest_client_request_size_bytes_sum{host="10.0.0.1:443",verb="GET"} 0.0',
            'rest_client_response_size_bytes_bucket{host="10.0.0.1:443",le="64.0",verb="GET"} 0.0',
            'rest_client_response_size_bytes_bucket{host="10.0.0.1:443",le="256.0",verb="GET"} 1.0',
            'rest_client_request_retries_total{code="401",host="10.0.0.1:443",verb="GET"} 1.0',
        }

    def test_requests_to_ray(self) -> None:
        metrics = ServiceMetrics("job-ctrl")
        requests = RayRequests(metrics)

        requests.answered("GET", 404, 0.02)
        requests.answered("GET", 0, 2.0)

        lines = set(metrics.render().decode().splitlines())
        assert lines >= {
            'raybus_ray_requests_total{code="404",method="GET"} 1.0',
            'raybus_ray_requests_total{code="<error>",method="GET"} 1.0',
            'raybus_ray_request_seconds_count{method="GET"} 2.0',
        }

    def test_two_services_in_one_process_do_not_share_a_registry(self) -> None:
        ControllerMetrics("a").passes.labels("done").inc()

        assert b'raybus_passes_total{result="done"}' not in ControllerMetrics("b").render()


class TestHealth:
    async def test_ready_says_which_check_does_not_hold(self) -> None:
        connected = [False]
        checks = {
            "nats": lambda: Check(connected[0], "no connection to NATS"),
            "queue": lambda: Check(ok=True, detail="0 due"),
        }
        server = HealthServer(ServiceMetrics("s"), checks)
        await server.start()
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as client:
                async with client.get("/readyz") as response:
                    assert response.status == 503
                    body = await response.json()
                    assert body["ready"] is False
                    assert body["checks"]["nats"] == {"ok": False, "detail": "no connection to NATS"}
                connected[0] = True
                async with client.get("/readyz") as response:
                    assert response.status == 200
                async with client.get("/healthz") as response:
                    assert response.status == 200
                async with client.get("/metrics") as response:
                    text = await response.text()
                    assert f'raybus_build_info{{component="s",version="{metadata.version("raybus")}"}} 1.0' in text
                    assert 'raybus_ready{check="nats"} 1.0' in text
                connected[0] = False
                async with client.get("/metrics") as response:
                    assert 'raybus_ready{check="nats"} 0.0' in await response.text()
        finally:
            await server.stop()

    async def test_a_check_that_raises_does_not_hold(self) -> None:
        def broken() -> Check:
            raise KeyError("x")

        server = HealthServer(ServiceMetrics("s"), {"broken": broken})
        await server.start()
        try:
            async with (
                aiohttp.ClientSession() as client,
                client.get(f"http://127.0.0.1:{server.port}/readyz") as response,
            ):
                assert response.status == 503
                assert "KeyError" in (await response.json())["checks"]["broken"]["detail"]
        finally:
            await server.stop()

    async def test_a_port_in_use_is_said_with_the_flag_to_change(self) -> None:
        first = HealthServer(ServiceMetrics("s"), {})
        await first.start()
        try:
            with pytest.raises(HealthPortError, match=f"{first.port}.*--health-port"):
                await HealthServer(ServiceMetrics("s"), {}, port=first.port).start()
        finally:
            await first.stop()

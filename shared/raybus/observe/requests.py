"""Metrics of requests: those to the API server under the names of Kubernetes' own clients, those to Ray under ours."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from raybus.observe.metrics import ServiceMetrics

KUBE_BUCKETS_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
WITHOUT_ANSWER = "<error>"


class KubeRequests:
    """What a raybus.kube client tells about its requests. `host` is the API server's address.

    Labels are looked up once: this runs at every request.
    """

    def __init__(self, metrics: ServiceMetrics, host: str) -> None:
        self._host = host
        self._requests = metrics.counter(
            "rest_client_requests",
            "Requests to the API server, by status; <error> where none came.",
            ("code", "method", "host"),
        )
        self._seconds = metrics.seconds(
            "rest_client_request_duration_seconds",
            "Time of a request to the API server; of a watch, until it was accepted.",
            ("verb", "host"),
            buckets=KUBE_BUCKETS_S,
        )
        self._waits = metrics.seconds(
            "rest_client_rate_limiter_duration_seconds",
            "Time a request waited before it was sent, because so many were under way.",
            ("verb", "host"),
            buckets=KUBE_BUCKETS_S,
        )
        self._sent = metrics.sizes(
            "rest_client_request_size_bytes", "Bodies of requests to the API server.", ("verb", "host")
        )
        self._received = metrics.sizes(
            "rest_client_response_size_bytes", "Bodies of its answers, watches excepted.", ("verb", "host")
        )
        self._repeated = metrics.counter(
            "rest_client_request_retries",
            "Requests sent once more, by the status that was the reason.",
            ("code", "verb", "host"),
        )
        self._counter: dict[tuple[str, int], Counter] = {}
        self._timer: dict[str, Histogram] = {}
        self._waiter: dict[str, Histogram] = {}
        self._sizes: dict[str, tuple[Histogram, Histogram]] = {}

    def waited(self, method: str, seconds: float) -> None:
        waiter = self._waiter.get(method)
        if waiter is None:
            waiter = self._waiter[method] = self._waits.labels(method, self._host)
        waiter.observe(seconds)

    def answered(self, method: str, status: int, seconds: float) -> None:
        counter = self._counter.get((method, status))
        if counter is None:
            code = str(status) if status else WITHOUT_ANSWER
            counter = self._counter[method, status] = self._requests.labels(code, method, self._host)
            self._timer[method] = self._seconds.labels(method, self._host)
        counter.inc()
        self._timer[method].observe(seconds)

    def carried(self, method: str, sent: int, received: int) -> None:
        sizes = self._sizes.get(method)
        if sizes is None:
            labels = method, self._host
            sizes = self._sizes[method] = (self._sent.labels(*labels), self._received.labels(*labels))
        sizes[0].observe(sent)
        sizes[1].observe(received)

    def repeated(self, method: str, status: int) -> None:
        self._repeated.labels(str(status), method, self._host).inc()


class RayRequests:
    """What raybus.ray.http.Dashboards tells about its requests."""

    def __init__(self, metrics: ServiceMetrics) -> None:
        self._requests = metrics.counter(
            "raybus_ray_requests",
            "Requests to Ray's dashboards, by status; <error> where none came.",
            ("code", "method"),
        )
        self._seconds = metrics.seconds(
            "raybus_ray_request_seconds",
            "Time of a request to a dashboard, those without an answer included.",
            ("method",),
        )

    def answered(self, method: str, status: int, seconds: float) -> None:
        self._requests.labels(str(status) if status else WITHOUT_ANSWER, method).inc()
        self._seconds.labels(method).observe(seconds)

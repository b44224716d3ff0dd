"""A real Prometheus: Debian's, fetched by tests/tools/prometheus. It scrapes every second, and evaluates the alerts."""

from __future__ import annotations

import asyncio
import functools
import json
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest
import yaml

from support.nats import free_port

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "alerts" / "raybus.yaml"
START_S = 30.0
PATIENCE_S = 90.0

Series = tuple[dict[str, str], float]
"""Labels and value."""


@functools.cache
def tools() -> Path:
    """The folder with prometheus and promtool; skips where they cannot be had."""
    done = subprocess.run(
        [ROOT / "tests" / "tools" / "prometheus"], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode == 77:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def promtool(*arguments: str | Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tools() / "promtool", *arguments], input=given, capture_output=True, text=True, timeout=120, check=False
    )


class Prometheus:
    """`async with Prometheus(folder, {"gateway": "127.0.0.1:8080"})`; a job per target, as the chart's Services make it."""

    def __init__(self, folder: Path, targets: Mapping[str, str], *, namespace: str = "raybus-system") -> None:
        self._folder = folder
        self._address = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        self._session: aiohttp.ClientSession | None = None
        folder.mkdir(parents=True)
        jobs = [
            {
                "job_name": name,
                "honor_labels": True,
                "static_configs": [{"targets": [address], "labels": {"namespace": namespace}}],
            }
            for name, address in targets.items()
        ]
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))

    async def __aenter__(self) -> Self:
        arguments = [
            f"--config.file={self._folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={self._address}",
            "--log.level=warn",
        ]
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
                [tools() / "prometheus", *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._session = aiohttp.ClientSession(f"http://{self._address}")
        try:
            await self._ready()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._session is not None
        assert self._process is not None
        await self._session.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self._process.wait, 10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)

    async def _ready(self) -> None:
        assert self._session is not None
        assert self._process is not None
        async with asyncio.timeout(START_S):
            while True:
                assert self._process.poll() is None, (self._folder / "prometheus.log").read_text()
                try:
                    async with self._session.get("/-/ready") as response:
                        if response.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)

    async def get(self, path: str, **query: str) -> Any:
        """`data` of an answer of the HTTP API; what it refuses fails the test with its words."""
        assert self._session is not None
        async with self._session.get(f"/api/v1/{path}", params=query) as response:
            body = await response.json()
            assert body["status"] == "success", f"{query}: {json.dumps(body)}"
            return body["data"]

    async def query(self, expr: str) -> list[Series]:
        found = (await self.get("query", query=expr))["result"]
        return [
            ({key: value for key, value in one["metric"].items() if key != "__name__"}, float(one["value"][1]))
            for one in found
        ]

    async def value(self, expr: str) -> float | None:
        """Of an expression with one series; None if it has none."""
        found = await self.query(expr)
        assert len(found) <= 1, f"{expr}: {found}"
        return found[0][1] if found else None

    async def until(self, expr: str, holds: Callable[[float | None], object], within_s: float = PATIENCE_S) -> float:
        """Wait until the expression's one value is as wished, None standing for no series; answers it (0 for None)."""
        found: float | None = None
        try:
            async with asyncio.timeout(within_s):
                while not holds(found := await self.value(expr)):  # noqa: ASYNC110 - a server is asked, it has no event for this
                    await asyncio.sleep(0.2)
        except TimeoutError:
            pytest.fail(f"{expr} is {found} after {within_s:g} s: {await self.query(expr.partition('{')[0])}")
        return found if found is not None else 0.0

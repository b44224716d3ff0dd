"""Ray's Jobs API: submit, get, list, stop, delete, logs.

An answer that is not success is never taken for a job: 404 is NotFound, any other status Refused, silence NoAnswer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson

from raybus.ray.errors import NoAnswer, NotFound, Refused
from raybus.ray.http import ANSWER_MAX, BODY_MAX, Answer, Dashboard, Dashboards

TERMINAL = frozenset({"STOPPED", "SUCCEEDED", "FAILED"})
LOG_IDLE_S = 60.0
STATUS_MAX = 100  # characters; Ray's own words are short, and what is no word must not fill a status
MESSAGE_MAX = 65_536
# What of a record may hold secrets and is not repeated when the record is an odd one.
_UNTOLD = frozenset({"runtime_env", "metadata", "entrypoint", "driver_info"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """What Ray says about a job. Times are milliseconds since 1970, 0 if not yet."""

    status: str
    message: str = ""
    start_time_ms: int = 0
    end_time_ms: int = 0
    submission_id: str = ""
    entrypoint: str = ""
    error_type: str = ""

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """`session` names one start of a head: another head process has another one. Empty if Ray does not say."""

    ray: str
    session: str


class JobsClient:
    """The Jobs API of one dashboard. All calls raise RayError's subclasses and nothing else."""

    def __init__(self, ray: Dashboards, dashboard: Dashboard) -> None:
        self._ray = ray
        self._dashboard = dashboard

    async def version(self) -> Version:
        found = await self._object("GET", "/api/version")
        return Version(ray=str(found.get("ray_version") or ""), session=str(found.get("session_name") or ""))

    async def submit(self, request: Mapping[str, Any]) -> str:
        """POST the job with Ray's own field names; the id it runs under. Refused.id_in_use if that exists."""
        found = await self._object("POST", "/api/jobs/", body=request)
        job_id = found.get("submission_id") or found.get("job_id")
        if not isinstance(job_id, str) or not job_id:
            raise self._odd("POST", "/api/jobs/", found)
        return job_id

    async def get(self, submission_id: str) -> JobRecord:
        path = _path(submission_id)
        found = await self._object("GET", path)
        record = decode(found)
        if record is None:
            raise self._odd("GET", path, found)
        return record

    async def list(self) -> tuple[JobRecord, ...]:
        answer = await self._ask("GET", "/api/jobs/", answer_max=BODY_MAX)
        found = _json(answer.body)
        if not isinstance(found, list):
            raise self._odd("GET", "/api/jobs/", found, answer.body)
        records = [decode(item) for item in found if isinstance(item, dict)]
        return tuple(record for record in records if record is not None)

    async def stop(self, submission_id: str, *, timeout_s: float | None = None) -> bool:
        """Ask Ray to stop the job. True: it will, or it has ended a moment ago; False: it had ended before."""
        path = _path(submission_id) + "/stop"
        found = await self._object("POST", path, timeout_s=timeout_s)
        if found.get("stopped") is True:
            return True
        if (await self.get(submission_id)).terminal:
            return False
        raise self._odd("POST", path, found)

    async def delete(self, submission_id: str) -> None:
        """Drop the record of a job that has ended."""
        await self._object("DELETE", _path(submission_id))

    async def logs(self, submission_id: str, *, timeout_s: float | None = None) -> str:
        """The whole log of the job's driver so far."""
        path = _path(submission_id) + "/logs"
        found = await self._object("GET", path, timeout_s=timeout_s, answer_max=BODY_MAX)
        if not isinstance(found.get("logs"), str):
            raise self._odd("GET", path, found)
        return str(found["logs"])

    async def tail(self, submission_id: str, *, idle_timeout_s: float | None = LOG_IDLE_S) -> AsyncGenerator[str]:
        """The log from its beginning as it grows, until the job has ended."""
        path = _path(submission_id) + "/logs/tail"
        asked = f"GET {self._dashboard.url}{path}"
        try:
            async with self._ray.websocket(self._dashboard, path, idle_timeout_s=idle_timeout_s) as socket:
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        yield message.data
                if socket.close_code != aiohttp.WSCloseCode.OK:
                    raise NoAnswer(f"{asked}: broken off ({socket.close_code})")
        except aiohttp.WSServerHandshakeError as error:
            if error.status == 404:
                raise NotFound(f"{asked}: no such job") from error
            raise Refused(asked, error.status, error.message) from error
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise NoAnswer(f"{asked}: {error or type(error).__name__}") from error

    async def _object(
        self, method: str, path: str, *, body: Any = None, timeout_s: float | None = None, answer_max: int = ANSWER_MAX
    ) -> Any:
        answer = await self._ask(method, path, body=body, timeout_s=timeout_s, answer_max=answer_max)
        found = _json(answer.body)
        if not isinstance(found, dict):
            raise self._odd(method, path, found, answer.body)
        return found

    async def _ask(
        self, method: str, path: str, *, body: Any = None, timeout_s: float | None = None, answer_max: int = ANSWER_MAX
    ) -> Answer:
        answer = await self._ray.request(
            self._dashboard, method, path, body=body, timeout_s=timeout_s, answer_max=answer_max
        )
        if 200 <= answer.status < 300:
            return answer
        asked = f"{method} {self._dashboard.url}{path}"
        if answer.status == 404 and not _from_proxy(answer.body):
            raise NotFound(f"{asked}: {answer.text.strip()[:200] or 'not found'}")
        raise Refused(asked, answer.status, answer.text)

    def _odd(self, method: str, path: str, found: Any, body: bytes = b"") -> Refused:
        """`found` is what the answer says as JSON; one that is none is shown as `body`."""
        shown: object = body[:500]
        if isinstance(found, dict):
            shown = str({key: value for key, value in found.items() if key not in _UNTOLD})[:500]
        return Refused(f"{method} {self._dashboard.url}{path}", 200, f"not an answer of the Jobs API: {shown}")


def decode(found: Mapping[str, Any]) -> JobRecord | None:
    """A record as Ray answers it; None if it is none. Unknown fields are passed over, null counts as absent."""
    status, started, ended = found.get("status"), found.get("start_time") or 0, found.get("end_time") or 0
    if not isinstance(status, str) or not 0 < len(status) <= STATUS_MAX:
        return None
    if not all(isinstance(time, int) and time >= 0 for time in (started, ended)):
        return None
    return JobRecord(
        status=status,
        message=str(found.get("message") or "")[:MESSAGE_MAX].encode(errors="replace").decode(),
        start_time_ms=started,
        end_time_ms=ended,
        submission_id=str(found.get("submission_id") or ""),
        entrypoint=str(found.get("entrypoint") or ""),
        error_type=str(found.get("error_type") or ""),
    )


def _path(submission_id: str) -> str:
    return f"/api/jobs/{quote(submission_id, safe='')}"


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:  # Ray writes with Python's own json, which knows NaN and halves of surrogate pairs
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _from_proxy(body: bytes) -> bool:
    """The API server in between says that it found no Service; Ray itself answers a plain text."""
    found = _json(body)
    return isinstance(found, dict) and found.get("kind") == "Status"

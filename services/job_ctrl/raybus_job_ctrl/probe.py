"""Asks Ray about jobs. What is learned becomes a fact; what it means is decided elsewhere (decide/verdict.py)."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from typing import Any, Protocol

from raybus.decide.actions import RayEndpoint
from raybus.decide.plan import WatchRayJob
from raybus.domain import kinds
from raybus.domain.kinds import Kind
from raybus.kube.errors import KubeError
from raybus.ray import NotFound, RayError, Refused
from raybus.ray.http import Dashboards
from raybus.ray.jobs import JobRecord, JobsClient

TOKEN_KEY = "auth_token"  # noqa: S105 - the key's name in the Secret
TOKEN_KEPT_S = 60.0
TOKENS_MAX = 10_000


class TokenError(Exception):
    """The token of a cluster cannot be read, so Ray cannot be asked at all."""


class Secrets(Protocol):
    async def get(
        self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float | None = None
    ) -> dict[str, Any]: ...


class RayAccess:
    """Clients of dashboards, with the token that a cluster asks for."""

    def __init__(self, ray: Dashboards, secrets: Secrets) -> None:
        self._ray = ray
        self._secrets = secrets
        self._tokens: dict[tuple[str, str], tuple[float, str]] = {}

    async def jobs(self, endpoint: RayEndpoint) -> JobsClient:
        """Raises TokenError."""
        token = await self._token(endpoint) if endpoint.auth_secret else ""
        at = self._ray.at(endpoint.address, namespace=endpoint.namespace, service=endpoint.service, token=token)
        return JobsClient(self._ray, at)

    def forget_token(self, endpoint: RayEndpoint) -> None:
        """It was not accepted: read it again next time."""
        self._tokens.pop((endpoint.namespace, endpoint.auth_secret), None)

    async def _token(self, endpoint: RayEndpoint) -> str:
        where, now = (endpoint.namespace, endpoint.auth_secret), asyncio.get_running_loop().time()
        until, token = self._tokens.get(where, (0.0, ""))
        if now < until:
            return token
        try:
            secret = await self._secrets.get(kinds.SECRET, *where, timeout_s=5.0)
            token = base64.b64decode((secret.get("data") or {})[TOKEN_KEY], validate=True).decode()
        except KubeError as error:
            raise TokenError(f"Secret {where[1]} with the cluster's token: {error.message}") from error
        except (KeyError, binascii.Error, UnicodeDecodeError):
            raise TokenError(f"Secret {where[1]} has no usable key {TOKEN_KEY}") from None
        if len(self._tokens) >= TOKENS_MAX:
            self._tokens.clear()
        self._tokens[where] = (now + TOKEN_KEPT_S, token)
        return token


class JobProber:
    """The shape of a fact: {"token", "session", "record": {"status", "message", "start_ms", "end_ms"} or None, "error": text or
    None, "asked": bool}. No record and no error: Ray answered that it knows no such job.
    """

    def __init__(self, access: RayAccess) -> None:
        self._access = access

    async def probe(self, watch: WatchRayJob) -> Mapping[str, Any]:
        try:
            jobs = await self._access.jobs(watch.endpoint)
        except TokenError as error:
            return _fact(watch, error=str(error), asked=False)
        try:
            return await self._ask(jobs, watch)
        except RayError as error:
            if isinstance(error, Refused) and error.status in (401, 403):
                self._access.forget_token(watch.endpoint)
            return _fact(watch, error=str(error))

    async def _ask(self, jobs: JobsClient, watch: WatchRayJob) -> Mapping[str, Any]:
        session = (await jobs.version()).session
        record = await _known(jobs, watch.submission_id)
        if record is None or record.terminal:
            # What ends the watching must not be put together from the words of two heads.
            again = (await jobs.version()).session
            if again != session:
                return _fact(watch, error=f"the head changed while it was asked ({session} to {again})")
        return _fact(watch, session=session, record=record)


async def _known(jobs: JobsClient, submission_id: str) -> JobRecord | None:
    try:
        return await jobs.get(submission_id)
    except NotFound:
        return None


def _fact(
    watch: WatchRayJob, *, session: str = "", record: JobRecord | None = None, error: str = "", asked: bool = True
) -> Mapping[str, Any]:
    return {
        "token": watch.token,
        "session": session,
        "record": None
        if record is None
        else {
            "status": record.status,
            "message": record.message,
            "start_ms": record.start_time_ms,
            "end_ms": record.end_time_ms,
        },
        "error": error or None,
        "asked": asked,
    }

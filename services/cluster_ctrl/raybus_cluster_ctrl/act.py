"""What this service may do: the list that its rights are made from, and the actions that only it has.

What may live here: classes of actions, and handlers for those that are more than one verb of Kubernetes. No decisions.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping

from raybus.decide.actions import (
    Action,
    CreateAuthSecret,
    CreateIngress,
    CreateObject,
    CreatePod,
    CreateRole,
    CreateRoleBinding,
    CreateService,
    CreateServiceAccount,
    DeletePod,
    Json,
    PatchRayClusterStatus,
    RecordEvent,
)
from raybus.decide.outcome import Outcome, Result
from raybus.kube.errors import AlreadyExists, KubeError
from raybus.runtime import outcomes
from raybus.runtime.executor import Handler
from raybus.runtime.ports import Kube

ACTIONS: tuple[type[Action], ...] = (
    CreatePod,
    DeletePod,
    CreateService,
    CreateServiceAccount,
    CreateRole,
    CreateRoleBinding,
    CreateIngress,
    CreateAuthSecret,
    PatchRayClusterStatus,
    RecordEvent,
)
_TOKEN_BYTES = 32


def handlers(kube: Kube, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> Mapping[type[Action], Handler]:
    """Objects that may exist already, whoever made them, and the one that holds a random token."""

    async def account(action: CreateServiceAccount) -> Outcome:
        return await _ensure(kube, action, action.body)

    async def auth_secret(action: CreateAuthSecret) -> Outcome:
        token = base64.b64encode(random_bytes(_TOKEN_BYTES)).decode()
        outcome = await _ensure(kube, action, {**action.body, "stringData": {"auth_token": token}})
        # The server's answer holds the token; it must reach neither history nor the mirror.
        return Outcome(action=action, result=outcome.result, message=outcome.message, code=outcome.code)

    return {CreateServiceAccount: account, CreateAuthSecret: auth_secret}


async def _ensure(kube: Kube, action: CreateObject, body: Json) -> Outcome:
    try:
        found = await kube.create(action.kind, body)
    except AlreadyExists as error:
        return Outcome(action=action, result=Result.ALREADY_SO, code=error.code)
    except KubeError as error:
        return outcomes.of_error(action, error)
    return Outcome(action=action, result=Result.DONE, code=201, body=found)

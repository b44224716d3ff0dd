"""The verbs of Kubernetes: each carries out one class of actions on the API server and says what became of it.

Every answer goes into the mirror at once, so that the next look at the tree has it. A new verb for Kubernetes belongs here.
"""

from __future__ import annotations

from raybus.decide.actions import Action, CreateObject, DeleteObject, ExistingObject, Json, PatchObject, PatchStatus
from raybus.decide.outcome import Outcome, Result
from raybus.domain import merge_patch
from raybus.kube.errors import AlreadyExists, KubeError, NotFound
from raybus.kube.gate import Lane
from raybus.runtime import outcomes
from raybus.runtime.ports import Kube, Mirror


class KubeVerbs:
    def __init__(self, kube: Kube, mirror: Mirror) -> None:
        self._kube = kube
        self._mirror = mirror

    async def carry_out(self, action: Action) -> Outcome:
        """Raises TypeError for an action that is none of Kubernetes'."""
        match action:
            case CreateObject():
                return await self._create(action)
            case DeleteObject():
                return await self._delete(action)
            case PatchStatus():
                return await self._patch_status(action)
            case PatchObject():
                return await self._patch(action)
        raise TypeError(f"nothing carries out {type(action).__name__}")

    async def _create(self, action: CreateObject) -> Outcome:
        try:
            body = await self._kube.create(action.kind, action.body)
        except AlreadyExists as error:
            return await self._existing(action, outcomes.of_error(action, error))
        except KubeError as error:
            outcome = outcomes.of_error(action, error)
            return await self._existing(action, outcome) if outcome.result is Result.AMBIGUOUS else outcome
        self._mirror.upsert(body)
        return Outcome(action=action, result=Result.DONE, code=201, body=body)

    async def _existing(self, action: CreateObject, outcome: Outcome) -> Outcome:
        """What stands under the name: it decides "already exists" and a creation that nobody answered for."""
        try:
            found = await self._kube.get(action.kind, action.namespace, action.name)
        except NotFound as error:
            if outcome.result is Result.AMBIGUOUS:
                return outcome  # it may still arrive
            return Outcome(
                action=action, result=Result.CONFLICT, message=f"it has just gone: {error.message}", code=409
            )
        except KubeError as error:
            return Outcome(action=action, result=Result.AMBIGUOUS, message=f"{outcome.message}; {error.message}")
        self._mirror.upsert(found)
        return outcomes.of_existing(action, found)

    async def _delete(self, action: DeleteObject) -> Outcome:
        try:
            body = await self._kube.delete(
                action.kind,
                action.namespace,
                action.name,
                uid=action.uid,
                resource_version=action.resource_version,
                propagation=action.propagation,
                grace_seconds=action.grace_seconds,
            )
        except KubeError as error:
            return await self._refreshed(action, outcomes.of_error(action, error))
        if body.get("kind") != "Status" and body.get("metadata", {}).get("deletionTimestamp"):
            self._mirror.upsert(body)
            return Outcome(action=action, result=Result.DONE, code=200, body=body)
        self._gone(action)
        return Outcome(action=action, result=Result.DONE, code=200)

    async def _patch(self, action: PatchObject) -> Outcome:
        return await self._merge(action, action.patch, action.resource_version, None, Lane.FIRST)

    async def _patch_status(self, action: PatchStatus) -> Outcome:
        diff = merge_patch.difference(action.previous, action.status)
        if not diff:
            return Outcome(action=action, result=Result.ALREADY_SO)
        return await self._merge(action, {"status": diff}, action.resource_version, "status", Lane.STATUS)

    async def _merge(
        self, action: ExistingObject, patch: Json, version: str, subresource: str | None, lane: Lane
    ) -> Outcome:
        try:
            body = await self._kube.merge_patch(
                action.kind,
                action.namespace,
                action.name,
                patch,
                uid=action.uid,
                resource_version=version,
                subresource=subresource,
                lane=lane,
            )
        except KubeError as error:
            return await self._refreshed(action, outcomes.of_error(action, error))
        if _removed(body):
            self._gone(action)
        else:
            self._mirror.upsert(body)
        return Outcome(action=action, result=Result.DONE, code=200, body=body)

    async def _refreshed(self, action: ExistingObject, outcome: Outcome) -> Outcome:
        """After a refused precondition or no answer: bring the mirror up to date, so that the next pass knows better."""
        if outcome.result is Result.GONE:
            self._gone(action)
            return outcome
        if outcome.result not in (Result.CONFLICT, Result.AMBIGUOUS):
            return outcome
        try:
            found = await self._kube.get(action.kind, action.namespace, action.name)
        except NotFound as error:
            self._gone(action)
            return Outcome(action=action, result=Result.GONE, message=error.message, code=error.code)
        except KubeError:
            return outcome
        self._mirror.upsert(found)
        if found["metadata"]["uid"] != action.uid:
            self._gone(action)
            message = f"{action.kind.kind} {action.name} is another object of this name now"
            return Outcome(action=action, result=Result.GONE, message=message, code=outcome.code)
        if isinstance(action, DeleteObject) and found["metadata"].get("deletionTimestamp"):
            return Outcome(action=action, result=Result.ALREADY_SO, code=outcome.code, body=found)
        return outcome

    def _gone(self, action: ExistingObject) -> None:
        self._mirror.deleted(action.kind.kind, action.namespace, action.name, action.uid)


def _removed(body: Json) -> bool:
    """The patch took the last finalizer of an object that was being deleted: it is gone with this answer."""
    metadata = body["metadata"]
    waiting = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return bool(metadata.get("deletionTimestamp")) and not waiting

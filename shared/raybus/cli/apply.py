"""Bringing a file's objects to the API server, each mistake told once in the server's own words."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from raybus.cli import story
from raybus.cli.errors import EXIT_ENVIRONMENT, UserError
from raybus.cli.manifest import kind_of
from raybus.domain import labels
from raybus.domain.cluster_spec import managed_elsewhere
from raybus.domain.kinds import RAYJOB, Kind
from raybus.kube.client import KubeClient
from raybus.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NoAnswer, NotFound

STRICT = {"fieldValidation": "Strict", "fieldManager": "raybus"}
GONE_TIMEOUT_S = 120.0


class Existing(StrEnum):
    """What to do about an object of the same name that is there already."""

    UPDATE = "update"
    ATTACH = "attach"
    REPLACE = "replace"
    REFUSE = "refuse"


def on_existing(found: Mapping[str, Any], *, replace: bool) -> Existing:
    """A RayJob runs once: an ended one is replaced or refused, a live one is followed, one that was turned away is replaced.
    Other objects are updated.
    """
    if found["kind"] != RAYJOB.kind:
        return Existing.UPDATE
    state = (found.get("status") or {}).get("jobDeploymentStatus") or ""
    ended = state in story.ENDED
    if found["metadata"].get("deletionTimestamp") or _turned_away(found, state):
        return Existing.REPLACE
    if replace and (ended or state == "Initializing"):
        return Existing.REPLACE
    return Existing.REFUSE if ended else Existing.ATTACH


def _turned_away(found: Mapping[str, Any], state: str) -> bool:
    """Nothing was ever made of it: the controller begins with its finalizer."""
    begun = labels.RAYJOB_FINALIZER in (found["metadata"].get("finalizers") or ())
    return state in ("", "ValidationFailed") and not begun and not managed_elsewhere(found.get("spec") or {})


def explain(error: KubeError, obj: Mapping[str, Any]) -> UserError:
    """The server's refusal as one message that names the field, and what to do."""
    what = f"{obj['kind']} {obj['metadata'].get('name', '')}"
    if isinstance(error, NoAnswer):
        return UserError(
            f"the API server does not answer: {error.message}", "`raybus status` shows what runs", EXIT_ENVIRONMENT
        )
    if isinstance(error, NotFound) and error.resource_unknown:
        return UserError(
            f"the API server does not know {obj['apiVersion']} {obj['kind']}",
            "install the definitions: raybus crds | kubectl apply --server-side -f -",
            EXIT_ENVIRONMENT,
        )
    if isinstance(error, NotFound):
        return UserError(f"{what}: {error.message}", "create what it names first, the namespace for example")
    if isinstance(error, Forbidden):
        return UserError(f"{what}: {error.message}", "ask for the right, or use another kubeconfig", EXIT_ENVIRONMENT)
    if isinstance(error, Invalid) and error.causes:
        named = [cause for cause in error.causes if cause.get("field") != "<nil>"]  # what else was not looked at
        fields = "; ".join(f"{cause.get('field')}: {cause.get('message')}" for cause in named or error.causes)
        return UserError(f"{what} is not valid: {fields}", "mend the field and run again")
    told = error.message.partition("strict decoding error: ")[2] or error.message
    return UserError(f"{what} is refused: {told}", "mend what it names and run again")


async def apply(client: KubeClient, obj: dict[str, Any], *, replace: bool) -> tuple[dict[str, Any], str]:
    """Create or update one object; what is on the server afterwards, and a word for what was done."""
    kind = kind_of(obj)
    try:
        return await _create(client, kind, obj), "created"
    except AlreadyExists:
        pass
    except KubeError as error:
        raise explain(error, obj) from None
    try:
        return await _meet_existing(client, kind, obj, replace=replace)
    except KubeError as error:
        raise explain(error, obj) from None


async def _create(client: KubeClient, kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    path = kind.path(obj["metadata"].get("namespace"))
    return await client.request("POST", path, query=STRICT, body=obj)


async def _meet_existing(
    client: KubeClient, kind: Kind, obj: dict[str, Any], *, replace: bool
) -> tuple[dict[str, Any], str]:
    path = kind.path(obj["metadata"].get("namespace"), obj["metadata"]["name"])
    found = await client.request("GET", path)
    match on_existing(found, replace=replace):
        case Existing.UPDATE:
            patched = await client.request(
                "PATCH", path, query=STRICT, body=obj, content_type="application/merge-patch+json"
            )
            same = patched["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
            return patched, "unchanged" if same else "updated"
        case Existing.ATTACH:
            return found, "running already"
        case Existing.REPLACE:
            await delete_and_wait(client, kind, found)
            return await _create(client, kind, obj), "replaced"
        case Existing.REFUSE:
            state = found["status"]["jobDeploymentStatus"]
            name = f"rayjob/{obj['metadata']['name']}"
            raise UserError(
                f"{name} ran already ({state}); a RayJob runs once",
                f"`raybus logs {name}` shows its output; --replace deletes it and runs again",
            )


async def delete_and_wait(client: KubeClient, kind: Kind, obj: Mapping[str, Any]) -> None:
    """Delete an object with all it owns and return when it is gone. UserError if that takes over two minutes."""
    meta = obj["metadata"]
    path = kind.path(meta.get("namespace"), meta["name"])
    options = {"propagationPolicy": "Foreground", "preconditions": {"uid": meta["uid"]}}
    try:
        await client.request("DELETE", path, body=options)
        async with asyncio.timeout(GONE_TIMEOUT_S):
            while (await client.request("GET", path))["metadata"]["uid"] == meta["uid"]:
                await asyncio.sleep(0.25)
    except (NotFound, Conflict):
        return
    except TimeoutError:
        raise UserError(
            f"{kind.kind} {meta['name']} is not gone after {GONE_TIMEOUT_S:.0f} s",
            f"see what holds it: kubectl describe {kind.plural} {meta['name']}",
            EXIT_ENVIRONMENT,
        ) from None

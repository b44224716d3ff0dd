"""The Secrets of an installation's own NATS: made where they are missing, never changed where they hold a key.

Killed at any point, and with another one at the same time, the next run finishes: each Secret is created whole or not at all, and
who is slower takes what is there.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from raybus.bus import permissions
from raybus.domain import kinds
from raybus.kube.client import KubeClient
from raybus.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from raybus.runtime.provision import pki, plan

ATTEMPTS = 10
LABELS = {
    "app.kubernetes.io/name": "raybus",
    "app.kubernetes.io/component": "nats",
    "app.kubernetes.io/part-of": "raybus",
    "app.kubernetes.io/managed-by": "raybus-provision",
}


class ProvisionError(Exception):
    """`remedy` says what to do. The text names no secret."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the Secrets are: `owner` is `Kind/name` of the object with which they go, empty for none."""

    namespace: str
    prefix: str
    server_names: tuple[str, ...]
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What is needed further on. `new`: the CA was made just now, so nobody can have connected before."""

    ca: str
    seed: str = field(repr=False)
    new: bool


Tell = Callable[[str], None]


class Keeper:
    """`now` is the time of all decisions of a run; `tell` gets a line for each thing that was done."""

    def __init__(self, kube: KubeClient, place: Place, now: datetime, tell: Tell) -> None:
        self._kube = kube
        self._place = place
        self._now = now
        self._tell = tell
        self._owner: dict[str, Any] | None = None

    async def keep(self) -> Made:
        """Raises ProvisionError, KubeError."""
        if bad := plan.bad_name(self._place.server_names):
            raise ProvisionError(f"{bad!r} is no DNS name and no address", "correct --server-names")
        if not self._place.server_names:
            raise ProvisionError("no name of the NATS servers is given", "give --server-names")
        self._owner = await self._read_owner()
        ca, new = await self._ca()
        publics: dict[str, bytes] = {}
        seeds: dict[str, bytes] = {}
        for user in permissions.users():
            seed = await self._user(user.name, ca[plan.CA_CERTIFICATE])
            publics[user.variable], seeds[user.name] = self._public(user.name, seed), seed
        await self._server(ca, publics)
        return Made(ca=ca[plan.CA_CERTIFICATE].decode(), seed=seeds[permissions.PROVISIONER].decode().strip(), new=new)

    async def _ca(self) -> tuple[dict[str, bytes], bool]:
        name = plan.ca_name(self._place.prefix)
        made = pki.new_ca(f"{self._place.prefix} {self._place.namespace}", self._now)
        secret, new = await self._found_or_made(name, made)
        found = _data(name, secret)
        if plan.unusable_ca(found):
            remedy = (
                f"put it back, or delete all Secrets {self._place.prefix}-* and restart every pod of Raybus afterwards"
            )
            raise ProvisionError(f"Secret {name} has no {plan.CA_CERTIFICATE} or no {plan.CA_KEY}", remedy)
        try:
            ends = pki.ends(found[plan.CA_CERTIFICATE])
        except pki.UnreadableError as error:
            raise ProvisionError(f"Secret {name}, {plan.CA_CERTIFICATE}: {error}", "put back what was there") from None
        if plan.ca_ends_soon(ends, self._now):
            self._tell(
                f"warning: the CA in Secret {name} ends on {ends:%Y-%m-%d}; delete the Secret while nothing runs"
            )
        return found, new

    async def _user(self, user: str, ca: bytes) -> bytes:
        name = plan.user_name(self._place.prefix, user)
        made = {plan.SEED: pki.new_seed(), plan.CA_CERTIFICATE: ca}

        def missing(found: plan.Data) -> tuple[dict[str, bytes], str]:
            wanted = made if plan.needs_seed(found) else {plan.CA_CERTIFICATE: ca}
            return plan.changes(found, wanted), "what was missing"

        return (await self._bring(name, made, missing))[plan.SEED]

    def _public(self, user: str, seed: bytes) -> bytes:
        name = plan.user_name(self._place.prefix, user)
        try:
            return pki.public_of_seed(seed)
        except pki.UnreadableError as error:
            remedy = "put back what was there, or delete the Secret and restart NATS and that service afterwards"
            raise ProvisionError(f"Secret {name}, {plan.SEED}: {error}", remedy) from None

    async def _server(self, ca: dict[str, bytes], publics: Mapping[str, bytes]) -> None:
        certificate, names = ca[plan.CA_CERTIFICATE], self._place.server_names
        try:
            made = {**pki.new_server(ca, names, self._now), plan.CA_CERTIFICATE: certificate, **publics}
            signs = pki.public_of_certificate(certificate)
        except pki.UnreadableError as error:
            raise ProvisionError(
                f"Secret {plan.ca_name(self._place.prefix)}: {error}", "put back what was there"
            ) from None

        def missing(found: plan.Data) -> tuple[dict[str, bytes], str]:
            has = pki.read(found.get(plan.CERTIFICATE), certificate)
            key = pki.public_of_key(found.get(plan.KEY))
            if why := plan.renewal(has, key, names, signs, self._now):
                return plan.changes(found, made), f"a new certificate: {why}; restart the NATS pods to use it"
            wanted = {plan.CA_CERTIFICATE: certificate, **publics}
            return plan.changes(found, wanted), "new keys; restart the NATS pods to use them"

        await self._bring(plan.server_name(self._place.prefix), made, missing)

    # One Secret

    async def _bring(
        self, name: str, made: plan.Data, missing: Callable[[plan.Data], tuple[dict[str, bytes], str]]
    ) -> dict[str, bytes]:
        """Create the Secret as `made`, or give the one that is there what `missing` says; what it holds then."""
        for _ in range(ATTEMPTS):
            secret, _new = await self._found_or_made(name, made)
            found = _data(name, secret)
            changed, about = missing(found)
            if not changed:
                return found
            try:
                await self._kube.merge_patch(
                    kinds.SECRET,
                    self._place.namespace,
                    name,
                    {"data": _encoded(changed)},
                    resource_version=secret["metadata"]["resourceVersion"],
                )
            except (Conflict, NotFound):
                continue
            self._tell(f"Secret {name} got {about}")
            return {**found, **changed}
        raise ProvisionError(f"Secret {name} is changed by somebody else all the time", "find out by whom")

    async def _found_or_made(self, name: str, made: plan.Data) -> tuple[dict[str, Any], bool]:
        for _ in range(ATTEMPTS):
            try:
                return await self._kube.get(kinds.SECRET, self._place.namespace, name), False
            except NotFound:
                pass
            try:
                secret = await self._kube.create(kinds.SECRET, self._body(name, made))
            except AlreadyExists:
                continue  # another one was faster: what it made counts
            except NotFound:
                raise ProvisionError(f"there is no namespace {self._place.namespace}", "correct --namespace") from None
            self._tell(f"Secret {name} made")
            return secret, True
        raise ProvisionError(f"Secret {name} comes and goes", "find out who deletes it")

    def _body(self, name: str, made: plan.Data) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": name, "namespace": self._place.namespace, "labels": LABELS}
        if self._owner:
            metadata["ownerReferences"] = [self._owner]
        return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": _encoded(made)}

    async def _read_owner(self) -> dict[str, Any] | None:
        if not self._place.owner:
            return None
        kind_name, _, name = self._place.owner.partition("/")
        try:
            kind = kinds.kind_named(kind_name)
        except KeyError:
            raise ProvisionError(f"{self._place.owner!r} is not KIND/NAME of an owner", "correct --owner") from None
        try:
            found = await self._kube.get(kind, self._place.namespace, name)
        except NotFound:
            raise ProvisionError(
                f"there is no {kind_name} {name} in namespace {self._place.namespace}",
                "give with --owner an object that is there for as long as the installation",
            ) from None
        except Forbidden as error:
            raise ProvisionError(
                error.message, f"give the right to get this {kind_name}, or leave --owner out"
            ) from None
        return {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": found["metadata"]["uid"]}


def _encoded(data: plan.Data) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


def _data(name: str, secret: Mapping[str, Any]) -> dict[str, bytes]:
    try:
        return {key: base64.b64decode(value, validate=True) for key, value in (secret.get("data") or {}).items()}
    except binascii.Error:
        raise ProvisionError(f"Secret {name} holds what is not base64", "restore it from a backup") from None

"""The shape of a controller: a pure state machine over watched objects. Pure.

`changed` and `gone` take news into the controller's own index and answer which keys to look at; `decide` says, of one key, what to
send. Nothing is decided for a key before every watched kind was listed once, so an absence means something.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from raybus.decide.tree import RootKey
from raybus.domain.kinds import Kind
from raybus.kube.errors import KubeError
from raybus_localkube.controllers.work import NOTHING, Call, Json, Work

Keys = Iterable[RootKey]


@dataclass(frozen=True, slots=True)
class Served:
    """A kind that the server has, with the verbs it allows."""

    kind: Kind
    verbs: frozenset[str]

    @property
    def watchable(self) -> bool:
        """Events are not: they own nothing, are owned by nobody, and are many."""
        return {"list", "watch"} <= self.verbs and self.kind.plural != "events"


@dataclass(frozen=True, slots=True)
class Ref:
    """What is known of an object that is gone."""

    uid: str
    namespace: str
    name: str


class Controller(ABC):
    """Base of all controllers. `name` is the `kind` of its keys, whose other parts are its own affair."""

    name: ClassVar[str]
    kinds: ClassVar[frozenset[Kind]] = frozenset()
    every_kind: ClassVar[bool] = False
    """Watch whatever the server has and can delete; `serve` tells what that is."""

    def key(self, namespace: str, name: str) -> RootKey:
        return RootKey(self.name, namespace, name)

    def serve(self, served: tuple[Served, ...]) -> Keys:  # noqa: ARG002 - most controllers know their kinds
        """What the server has now, told once before anything else and after each change."""
        return ()

    @abstractmethod
    def changed(self, kind: Kind, obj: Json) -> Keys: ...

    @abstractmethod
    def gone(self, kind: Kind, ref: Ref) -> Keys: ...

    def decide(self, key: RootKey, now: datetime) -> Work:  # noqa: ARG002 - the signature is what counts
        return NOTHING

    def answered(self, key: RootKey, call: Call, answer: dict[str, Any] | KubeError) -> Keys:  # noqa: ARG002 - as above
        """What came of a call, before the next step; objects in answers also come through `changed`."""
        return ()

"""Which rights in Kubernetes follow from what a service declares: its actions and its routes. Pure.

The one table of rights. What may live here: for each class of action, each use of a route and each fixed read, the requests that
the code makes because of it. `deploy/generate.py` makes the chart's roles from it; tests/integration/rights compares them with the
requests that an API server saw. Who adds a class of actions adds its line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from raybus.decide import actions
from raybus.decide.actions import Action
from raybus.decide.routes import Route, Via
from raybus.domain import kinds
from raybus.domain.kinds import Kind

REFERENCE_LEASE = "ray-operator-leader"
THROUGH_API_SERVER = "useKubernetesProxy"
INSTALLS_DEFINITIONS = "installDefinitions"
_DEFINED = (kinds.RAYCLUSTER, kinds.RAYJOB, kinds.RAYSERVICE, kinds.RAYCRONJOB)
PREFIX = "${prefix}"
OWNER = "${owner}"


class Scope(StrEnum):
    """Where a right is bound."""

    CLUSTER = "cluster"  # in the whole cluster, always
    NAMESPACED = "namespaced"  # in each namespace that is looked after, or in all
    RELEASE = "release"  # in the namespace that Raybus itself runs in


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """`verbs` on `resource` ("pods", "pods/status"), of `names` only if there are any. `why` is for people.

    `setting`: needed only with this value of the chart. `implied`: no request of its own, but the API server asks for it when it
    looks at another one.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    names: tuple[str, ...] = ()
    scope: Scope = Scope.NAMESPACED
    setting: str = ""
    implied: bool = False


Rule = Mapping[str, Sequence[str]]


def on(kind: Kind, *verbs: str, why: str, sub: str = "", **more: Any) -> Right:
    """A right on a kind, or on a subresource of it."""
    return Right(
        group=kind.group, resource=f"{kind.plural}/{sub}" if sub else kind.plural, verbs=verbs, why=why, **more
    )


IDENTITY = on(
    kinds.NAMESPACE,
    "get",
    names=("kube-system",),
    scope=Scope.CLUSTER,
    why="its uid identifies the cluster",
)
COEXISTENCE = on(
    kinds.LEASE,
    "list",
    names=(REFERENCE_LEASE,),
    scope=Scope.CLUSTER,
    why="whether KubeRay's operator runs here too",
)
EVENTS = on(kinds.EVENT, "create", "patch", why="events; patched when one happens again")


# Actions


def _create(action: type[actions.CreateObject]) -> tuple[Right, ...]:
    name = action.__name__
    return (
        on(action.kind, "create", why=name),
        on(action.kind, "get", why=f"{name}: whose is the one that is there already?"),
    )


def _ensure(action: type[actions.CreateObject]) -> tuple[Right, ...]:
    """One that is there already is good, whoever made it: it is not even looked at."""
    return (on(action.kind, "create", why=action.__name__),)


def _delete(action: type[actions.DeleteObject]) -> tuple[Right, ...]:
    name = action.__name__
    return on(action.kind, "delete", why=name), on(action.kind, "get", why=f"{name}: after a refused precondition")


def _patch(action: type[actions.PatchObject]) -> tuple[Right, ...]:
    name = action.__name__
    return on(action.kind, "patch", why=name), on(action.kind, "get", why=f"{name}: after a conflict")


def _status(action: type[actions.PatchStatus]) -> tuple[Right, ...]:
    name = action.__name__
    return (
        on(action.kind, "patch", sub="status", why=name),
        on(action.kind, "get", why=f"{name}: after a conflict"),
    )


def _ask_ray(action: type[Action]) -> tuple[Right, ...]:
    name = action.__name__
    return (
        on(kinds.SECRET, "get", why=f"{name}: the token of a cluster that asks for one, by name"),
        on(kinds.SERVICE, "create", sub="proxy", setting=THROUGH_API_SERVER, why=name),
    )


def _none(_action: type[Action]) -> tuple[Right, ...]:
    return ()


PROBE = (
    on(kinds.SECRET, "get", why="asking Ray: the token of a cluster that asks for one, by name"),
    on(kinds.SERVICE, "get", sub="proxy", setting=THROUGH_API_SERVER, why="asking Ray"),
)

# The first that an action is a class of counts.
_BY_ACTION: tuple[tuple[type[Action], Callable[[Any], tuple[Right, ...]]], ...] = (
    (actions.CreateServiceAccount, _ensure),
    (actions.CreateAuthSecret, _ensure),
    (actions.CreateObject, _create),
    (actions.DeleteObject, _delete),
    (actions.PatchObject, _patch),
    (actions.PatchStatus, _status),
    (actions.SubmitRayJob, _ask_ray),
    (actions.StopRayJob, _ask_ray),
    (actions.RecordEvent, _none),  # every controller may: EVENTS
    (actions.Reconsider, _none),
)


def of_action(action: type[Action]) -> tuple[Right, ...]:
    """Raises TypeError for a class of which nobody has said what it needs."""
    for known, needs in _BY_ACTION:
        if issubclass(action, known):
            return needs(action)
    raise TypeError(f"{action.__name__} has no line in the table of rights")


# Routes


def of_watching(route: Route) -> Right:
    """What the gateway does to serve a route."""
    return on(route.kind, "list", "watch", why=f"news for trees of {route.root_kind}s")


def of_reading(route: Route) -> tuple[Right, ...]:
    """What a controller does with its own route: confirm what it is about to rely on, and read what no message can carry."""
    tree = f"trees of {route.root_kind}s"
    one = on(route.kind, "get", why=f"{tree}: one that is too large for a message")
    if route.via is Via.ROOT or (route.via is Via.OWNER and route.kind == kinds.JOB):
        return (one, on(route.kind, "get", why=f"{tree}: a fresh look before something destructive"))
    return (one, on(route.kind, "list", why=f"{tree}: a fresh look before something destructive"))


# Services


def gateway(routes: Iterable[Route]) -> tuple[Right, ...]:
    """Of the gateway that serves these routes of all controllers."""
    return (IDENTITY, *dict.fromkeys(of_watching(route) for route in routes))


def controller(
    root: Kind,
    acts: Iterable[type[Action]],
    routes: Iterable[Route],
    *,
    probes: bool = False,
    grants: Iterable[Rule] = (),
) -> tuple[Right, ...]:
    """Of a controller of `root` objects. `grants` are the rules of Roles that it makes, which it can only give if it has them."""
    found = [IDENTITY, COEXISTENCE, EVENTS]
    for action in acts:
        found += of_action(action)
    for route in routes:
        found += of_reading(route)
    if probes:
        found += PROBE
    # What is made is owned, and holds up the deletion of its owner: on some clusters (OpenShift) that takes a right on the owner.
    why = "objects that hold up their owner's deletion (admission plugin OwnerReferencesPermissionEnforcement)"
    found.append(on(root, "update", sub="finalizers", implied=True, why=why))
    for rule in grants:
        found += [
            Right(group=group, resource=resource, verbs=tuple(rule["verbs"]), implied=True, why="given to autoscalers")
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        ]
    return tuple(dict.fromkeys(found))


def provisioner(kept: Iterable[str], derived: Iterable[str]) -> tuple[Right, ...]:
    """Of the Job that makes definitions, keys, certificates and streams. `kept` and `derived` are the names, without their prefix, of the
    Secrets that it never changes and of those that it brings up to date.
    """
    release = {"scope": Scope.RELEASE}
    installing = {"scope": Scope.CLUSTER, "setting": INSTALLS_DEFINITIONS}
    definitions = tuple(f"{kind.plural}.{kind.group}" for kind in _DEFINED)
    unchanged, changed = (tuple(f"{PREFIX}-{name}" for name in names) for names in (kept, derived))
    return (
        IDENTITY,
        on(
            kinds.CRD,
            "create",
            implied=True,
            why="server-side apply of definitions of ray.io that are missing",
            **installing,
        ),
        on(
            kinds.CRD,
            "get",
            "patch",
            names=definitions,
            why="definitions of ray.io: made and brought up to date by server-side apply",
            **installing,
        ),
        on(kinds.SECRET, "create", why="keys and certificates that are missing", **release),
        on(kinds.SECRET, "get", names=unchanged, why="what is there already", **release),
        on(kinds.SECRET, "get", "patch", names=changed, why="what is missing in them or about to end", **release),
        on(
            kinds.CONFIG_MAP,
            "get",
            names=(OWNER,),
            why="the uid of the Secrets' owner, so that they go with it",
            **release,
        ),
    )


# Rules


def rules(rights: Iterable[Right], scope: Scope, setting: str = "") -> list[dict[str, list[str]]]:
    """The smallest list of PolicyRules that gives exactly these rights, in a fixed order."""
    verbs: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for right in rights:
        if right.scope is scope and right.setting == setting:
            verbs.setdefault((right.group, right.resource, tuple(sorted(right.names))), set()).update(right.verbs)
    merged: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, resource, names), given in sorted(verbs.items()):
        without_names = verbs.get((group, resource, ()), set()) if names else set()
        if needed := tuple(sorted(given - without_names)):
            merged.setdefault((group, names, needed), []).append(resource)
    return [
        {"apiGroups": [group], "resources": resources}
        | ({"resourceNames": list(names)} if names else {})
        | {"verbs": list(needed)}
        for (group, names, needed), resources in sorted(merged.items())
    ]


def settings(rights: Iterable[Right], scope: Scope = Scope.NAMESPACED) -> list[str]:
    """The values of the chart that some of these depend on."""
    return sorted({right.setting for right in rights if right.setting and right.scope is scope})

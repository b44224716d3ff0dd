"""Whether KubeRay's operator is at work on the same namespaces, from its Lease and the pod that holds it. Pure.

What may live here: how Lease, Pod and configuration file of that operator are read, and what follows. Who fetches them stands in
raybus.runtime.neighbours. A set of namespaces that is empty means all of them, as in the settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import yaml

from raybus.decide.rights import REFERENCE_LEASE
from raybus.domain import times

Json = Mapping[str, Any]

DURATION_S = 15  # where a Lease does not say how long it holds
TOLERANCE = timedelta(seconds=15)  # clocks differ
WATCHES = "watch-namespace"
CONFIG = "config"
_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who holds a live Lease of the reference operator. `holder` is `<pod>_<uuid>` as that operator writes it."""

    namespace: str
    holder: str
    renewed: datetime

    @property
    def pod(self) -> str:
        return self.holder.rpartition("_")[0] or self.holder


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The namespaces that an operator looks after, and in words how that is known."""

    namespaces: frozenset[str]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """Where the text of a configuration file stands: a key of a ConfigMap in the pod's namespace."""

    config_map: str
    key: str


def leader(lease: Json, now: datetime) -> Leader | None:
    """Who holds the Lease; None if nobody does, or has not renewed it in time."""
    spec = lease.get("spec") or {}
    renewed = times.parse(spec.get("renewTime"))
    holder = str(spec.get("holderIdentity") or "")
    if renewed is None or not holder:
        return None
    lasts = timedelta(seconds=int(spec.get("leaseDurationSeconds") or DURATION_S))
    if now > renewed + lasts + TOLERANCE:
        return None
    return Leader(namespace=str(lease["metadata"]["namespace"]), holder=holder, renewed=renewed)


def config_file(pod: Json) -> ConfigFile | None:
    """The configuration file that the operator was given, if it lies in a ConfigMap."""
    for container in _containers(pod):
        path = _flag(pod, container, CONFIG)
        for mount in container.get("volumeMounts") or () if path else ():
            place, below = str(mount["mountPath"]), mount.get("subPath")
            inside = path == place if below else str(path).startswith(place.rstrip("/") + "/")
            if inside:
                key = str(below or str(path)[len(place.rstrip("/")) + 1 :])
                return _in_config_map(pod, str(mount["name"]), key)
    return None


def _in_config_map(pod: Json, volume: str, key: str) -> ConfigFile | None:
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    source = next((each.get("configMap") for each in volumes if each["name"] == volume), None)
    if not source:
        return None
    named = {str(item["path"]): str(item["key"]) for item in source.get("items") or ()}
    return ConfigFile(config_map=str(source["name"]), key=named.get(key, key))


def watched(pod: Json | None, config: str | None) -> Watched:
    """What the operator in this pod looks after; `config` is the text of its configuration file. All, where that cannot be known."""
    if pod is None:
        return Watched(namespaces=frozenset(), why="its pod cannot be read")
    for container in _containers(pod):
        if _flag(pod, container, CONFIG) is not None:  # the operator ignores its flags then
            return _by_config(config)
        given = _flag(pod, container, WATCHES)
        if given is not None and "$(" in given:
            return Watched(namespaces=frozenset(), why=f"its --{WATCHES} cannot be read")
        if given:
            return Watched(namespaces=_names(given), why=f"its --{WATCHES}")
    return Watched(namespaces=frozenset(), why=f"it has no --{WATCHES}")


def _by_config(config: str | None) -> Watched:
    unknown = Watched(namespaces=frozenset(), why="its configuration file cannot be read")
    if config is None:
        return unknown
    try:
        found = yaml.safe_load(config)
    except yaml.YAMLError:
        return unknown
    given = found.get("watchNamespace") if isinstance(found, dict) else None
    if not given:
        return Watched(namespaces=frozenset(), why="its configuration file names none")
    return Watched(namespaces=_names(str(given)), why="its configuration file")


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, (name.strip() for name in text.split(","))))


def _containers(pod: Json) -> Sequence[Json]:
    containers: Sequence[Json] = (pod.get("spec") or {}).get("containers") or ()
    return containers


def _flag(pod: Json, container: Json, name: str) -> str | None:
    """The value of a flag as Go's flag package reads it, the last one counts; None if it is not given."""
    words = list(_words(pod, container))
    found = None
    for number, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in (f"-{name}", f"--{name}"):
            found = value if equals else next(iter(words[number + 1 : number + 2]), "")
    return found


def _words(pod: Json, container: Json) -> Iterator[str]:
    """Command and arguments with the container's variables filled in, as far as the pod's own text has them."""
    known = {str(env["name"]): text for env in container.get("env") or () if (text := _text(pod, env)) is not None}
    for word in (*(container.get("command") or ()), *(container.get("args") or ())):
        yield _VARIABLE.sub(lambda match: known.get(match[1], match[0]), str(word))


def _text(pod: Json, env: Json) -> str | None:
    if "value" in env:
        return str(env["value"])
    field = ((env.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
    return str(pod["metadata"]["namespace"]) if field == "metadata.namespace" else None


def overlap(ours: frozenset[str], theirs: frozenset[str]) -> frozenset[str] | None:
    """The namespaces that both look after; None if there is none."""
    if not ours or not theirs:
        return ours or theirs
    return ours & theirs or None


def refusal(found: Leader, watch: Watched, both: frozenset[str], now: datetime) -> str:
    """Why this process does not start, and what can be done about it; one line."""
    ago = max((now - found.renewed).total_seconds(), 0.0)
    where = f"namespaces {', '.join(sorted(both))}" if both else "all namespaces"
    return (
        f"a KubeRay operator is at work: it holds Lease {REFERENCE_LEASE} in namespace {found.namespace} "
        f"(holder {found.holder}, renewed {ago:.0f} s ago) and looks after {where} too ({watch.why}). "
        "Two operators would both act on the same objects. Scale the other one to 0 and wait half a minute, "
        "or give each its own namespaces (--namespaces here, --watch-namespace there), "
        "or start with --take-over to work beside it all the same"
    )

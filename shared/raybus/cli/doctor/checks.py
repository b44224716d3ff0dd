"""What the facts of a cluster mean, one function per subject. Pure.

A check yields findings in the order in which one would look. What belongs to an installation by the chart stands in installation.py.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from raybus.api import crds
from raybus.cli.doctor import installation, look
from raybus.cli.doctor.facts import Cluster, Finding, Installation, Json, Operator, Unread
from raybus.domain import names
from raybus.domain.times import parse
from raybus.runtime import coexistence

CLOCK_WARNING_S = 3.0  # a Date header is in whole seconds, and the answer takes its time
CLOCK_FAILED_S = 30.0  # markers of this age stop the controllers
NODE_SILENT_S = 60.0
SHOWN = 4
POD_TEMPLATES = ("template", "submitterPodTemplate")


def findings(facts: Cluster) -> list[Finding]:
    """Everything, in the order in which it is to be mended."""
    found = list(api_server(facts))
    if facts.server.error:
        return found
    for check in (definitions, other_operator, installation.findings, apart, clocks, dns, images):
        found += check(facts)
    return found


def api_server(facts: Cluster) -> Iterator[Finding]:
    server = facts.server
    if server.error:
        remedy = "is it up, and is this the right kubeconfig? try: kubectl version"
        yield Finding("API server", "failed", f"{server.url} cannot be used: {server.error}", remedy)
    else:
        yield Finding("API server", "ok", f"{server.url}, Kubernetes {server.version}")


# Definitions


def definitions(facts: Cluster) -> Iterator[Finding]:
    if isinstance(facts.definitions, Unread):
        yield _unread("definitions", "the ray.io definitions", facts.definitions)
        return
    wanted = _ours()
    good, missing = [], [name for name, installed in facts.definitions.items() if installed is None]
    if missing:
        remedy = "the installation makes them" if _comes(facts) else INSTALL
        yield Finding("definitions", "failed", f"missing: {', '.join(missing)}", remedy)
    for name, installed in facts.definitions.items():
        if installed is None:
            continue
        problem = _definition(name, installed, wanted[name])
        if problem is None:
            good.append(name)
        else:
            yield problem
    if good:
        yield Finding("definitions", "ok", f"{', '.join(good)}: served and stored as v1, with the fields Raybus reads")


def _comes(facts: Cluster) -> bool:
    """Whether there is no installation yet, or one that is just being made."""
    if not facts.expected or isinstance(facts.installations, Unread):
        return False
    return not facts.installations or any(look.is_at_work(job) for one in facts.installations for job in one.jobs)


@functools.cache
def _ours() -> Mapping[str, Json]:
    return {each["metadata"]["name"]: each for each in crds.build()}


INSTALL = "raybus crds | kubectl apply --server-side -f -"
# Whoever made the definition owns its fields, and the API server refuses to have them taken away without being told.
REPLACE = "raybus crds | kubectl apply --server-side --force-conflicts -f -"


def _definition(name: str, installed: Json, wanted: Json) -> Finding | None:
    if "deletionTimestamp" in installed["metadata"]:
        what = f"{name} is being deleted, and all objects of its kind with it"
        return Finding("definitions", "failed", what, f"when it is gone: {INSTALL}")
    if (look.condition(installed, "Established") or {}).get("status") != "True":
        return Finding("definitions", "failed", f"{name} is not served (yet)", f"kubectl describe crd {name}")
    found = _version(installed, "v1")
    if found is None or not found["served"]:
        return Finding("definitions", "failed", f"{name} does not serve version v1", REPLACE)
    if "status" not in (found.get("subresources") or {}):
        return Finding("definitions", "failed", f"{name} has no status subresource in version v1", REPLACE)
    if lost := _lost(wanted, found):
        more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
        what = f"{name} lacks {', '.join(lost[:SHOWN])}{more}: the API server drops these fields from what is applied"
        return Finding("definitions", "warning", what, f"install newer definitions: {REPLACE}")
    if not found["storage"]:
        what = f"{name} stores version {_stored(installed)}, not v1"
        return Finding("definitions", "warning", what, f"migrate the stored objects, then: {REPLACE}")
    return None


def _version(definition: Json, name: str) -> Json:
    return next((each for each in definition["spec"]["versions"] if each["name"] == name), {"served": False})


def _stored(definition: Json) -> str:
    return ", ".join(each["name"] for each in definition["spec"]["versions"] if each.get("storage"))


def _lost(wanted: Json, found: Json) -> list[str]:
    """The fields of ours that the installed version neither names nor keeps; of a field and those below it only the first."""
    schema = ((found.get("schema") or {}).get("openAPIV3Schema")) or {}
    lost = {path for path in _fields(_spec(_version(wanted, "v1"))) if not _keeps(schema, path)}
    return sorted(path for path in lost if path.rpartition(".")[0] not in lost)


def _spec(version: Json) -> Json:
    spec: Json = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def _fields(schema: Json, path: str = "spec") -> Iterator[str]:
    """Paths of all fields, such as spec.workerGroupSpecs.replicas. What is below a pod template is Kubernetes' own."""
    yield path
    properties = (schema.get("items") or schema).get("properties") or {}
    if path.rpartition(".")[2] not in POD_TEMPLATES:
        for name, each in properties.items():
            yield from _fields(each, f"{path}.{name}")


def _keeps(schema: Any, path: str) -> bool:
    """Whether an object's field outlives the API server: the schema names it, or keeps whatever stands there."""
    for part in path.split("."):
        inner = schema.get("items") or schema
        if inner.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in inner:
            return True
        schema = (inner.get("properties") or {}).get(part)
        if schema is None:
            return False
    return True


# The other operator


def other_operator(facts: Cluster) -> Iterator[Finding]:
    """As the controllers judge it when they start."""
    check = "other operator"
    if isinstance(facts.operators, Unread):
        yield _unread(check, "whether KubeRay's operator runs here", facts.operators)
        return
    if not facts.operators:
        yield Finding(check, "ok", "no KubeRay operator is at work")
    for operator in facts.operators:
        yield _beside(facts, check, operator)


def _beside(facts: Cluster, check: str, operator: Operator) -> Finding:
    leader, watched = operator.leader, operator.watched
    who = f"a KubeRay operator is at work ({leader.holder} in namespace {leader.namespace})"
    ours = [frozenset(look.namespaces_of(each)) - {""} for each in _controllers(facts)] or [frozenset[str]()]
    shared = [both for each in ours if (both := coexistence.overlap(each, watched.namespaces)) is not None]
    if not shared:
        return Finding(check, "ok", f"{who}, on other namespaces: {', '.join(sorted(watched.namespaces))}")
    both = frozenset[str]() if frozenset() in shared else frozenset[str]().union(*shared)
    what = f"{who}, and looks after {_namespaces(both)} as Raybus does ({watched.why})"
    if _controllers(facts) and all(look.takes_over(each) for each in _controllers(facts)):
        return Finding(check, "warning", f"{what}; Raybus was told to take over", "see that the other one does not act")
    remedy = "stop it, or give each its own namespaces (watchNamespace), or let Raybus take over (settings.takeOver)"
    return Finding(check, "failed", what, remedy)


def _namespaces(named: frozenset[str]) -> str:
    return f"namespaces {', '.join(sorted(named))}" if named else "all namespaces"


def apart(facts: Cluster) -> Iterator[Finding]:
    """Two of Raybus on one namespace: nothing is made twice, but each write of one is a conflict of the other."""
    installed = () if isinstance(facts.installations, Unread) else facts.installations
    for one, other in combinations(installed, 2):
        both = coexistence.overlap(_looked_after(one), _looked_after(other))
        if both is not None:
            what = f"{one.namespace}/{one.name} and {other.namespace}/{other.name} both look after {_namespaces(both)}"
            remedy = "give each its own namespaces (watchNamespace), or uninstall one"
            yield Finding("installations", "failed", what, remedy)


def _looked_after(one: Installation) -> frozenset[str]:
    """Empty for all."""
    named = [frozenset(look.namespaces_of(deployment)) for deployment in one.deployments]
    return frozenset() if any("" in each for each in named) else frozenset[str]().union(*named)


def _controllers(facts: Cluster) -> list[Json]:
    installed = () if isinstance(facts.installations, Unread) else facts.installations
    return [each for one in installed for each in one.deployments if look.component_of(each).endswith("-ctrl")]


# Clocks


def clocks(facts: Cluster) -> Iterator[Finding]:
    """Everything is compared with the API server: its times stand in the objects."""
    found = [*_this_machine(facts), *_pods(facts), *_nodes(facts)]
    yield from found
    if not found:
        yield Finding("clocks", "ok", f"at most {CLOCK_WARNING_S:.0f} s between the API server and whoever was asked")


def _this_machine(facts: Cluster) -> Iterator[Finding]:
    ahead = facts.server.ahead_s
    if ahead is not None and abs(ahead) > CLOCK_WARNING_S:
        what = f"the API server's clock is {_apart(ahead)} this machine's"
        yield Finding("clocks", "warning", what, "run a time service (chrony, systemd-timesyncd) on both")


def _pods(facts: Cluster) -> Iterator[Finding]:
    installed = () if isinstance(facts.installations, Unread) else facts.installations
    for pod, answer in ((pod, answer) for one in installed for pod, answer in one.answers.items()):
        if answer.ahead_s is not None and facts.server.ahead_s is not None:
            yield from _skew(f"pod {pod}", answer.ahead_s - facts.server.ahead_s)


def _skew(who: str, ahead: float) -> Iterator[Finding]:
    if abs(ahead) > CLOCK_WARNING_S:
        level: Any = "failed" if abs(ahead) > CLOCK_FAILED_S else "warning"
        what = f"the clock of {who} is {_apart(ahead)} the API server's"
        yield Finding("clocks", level, what, "run a time service on its node; deadlines and TTLs are off by as much")


def _nodes(facts: Cluster) -> Iterator[Finding]:
    if isinstance(facts.node_leases, Unread):
        yield _unread("clocks", "the nodes' clocks", facts.node_leases)
        return
    for lease in facts.node_leases:
        renewed = parse(lease["spec"].get("renewTime"))
        if renewed is None:
            continue
        ahead = (renewed - facts.now).total_seconds()
        if ahead > CLOCK_WARNING_S:
            yield from _skew(f"node {look.name_of(lease)}", ahead)
        elif ahead < -NODE_SILENT_S:
            what = f"node {look.name_of(lease)} has not renewed its lease for {-ahead:.0f} s"
            yield Finding("clocks", "warning", what, "its kubelet is down, cut off, or its clock is behind")


def _apart(ahead: float) -> str:
    return f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'}"


# DNS


def dns(facts: Cluster) -> Iterator[Finding]:
    """Pods find Ray's Services below the domain that their kubelet gives them; the controllers must use the same."""
    if isinstance(facts.domains, Unread):
        yield _unread("DNS", "the cluster's DNS domain", facts.domains)
        return
    if isinstance(facts.dns_pods, Unread):
        yield _unread("DNS", "the cluster's DNS servers", facts.dns_pods)
    else:
        yield from _dns_servers(facts.dns_pods)
    used = {_domain(each) for each in _controllers(facts)} or {names.DEFAULT_CLUSTER_DOMAIN}
    wrong = {node: domain for node, domain in facts.domains.items() if {domain.rstrip(".")} != used}
    for node, domain in wrong.items():
        what = f"pods on node {node} search {domain or 'no domain'}, the controllers use {', '.join(sorted(used))}"
        yield Finding(
            "DNS", "failed", what, f"set settings.clusterDomain (CLUSTER_DOMAIN) to {domain or 'the right one'}"
        )
    if not wrong and facts.domains:
        yield Finding("DNS", "ok", f"cluster domain {', '.join(sorted(used))}, as the nodes have it")


def _dns_servers(pods: Sequence[Json]) -> Iterator[Finding]:
    """Without any nothing is said: they may be called otherwise, or be no pods."""
    silent = [look.name_of(pod) for pod in pods if not look.is_ready(pod) and not look.is_over(pod)]
    if silent:
        level: Any = "failed" if len(silent) == len(pods) else "warning"
        what = f"{len(silent)} of {len(pods)} DNS servers are not ready: {', '.join(silent[:SHOWN])}"
        yield Finding(
            "DNS", level, what, f"kubectl -n kube-system describe pod {silent[0]}; pods find no names without"
        )


def _domain(controller: Json) -> str:
    found = look.settings_of(controller)
    return (found.get("RAYBUS_CLUSTER_DOMAIN") or found.get("CLUSTER_DOMAIN") or names.DEFAULT_CLUSTER_DOMAIN).rstrip(
        "."
    )


# Images of Ray


def images(facts: Cluster) -> Iterator[Finding]:
    if isinstance(facts.ray_pods, Unread):
        yield _unread("images of Ray", "pods of Ray clusters", facts.ray_pods)
        return
    found = list(pull_findings("images of Ray", facts.ray_pods))
    yield from found
    if not found:
        yield Finding("images of Ray", "ok", f"no image is missing; {len(facts.ray_pods)} Ray pods")


def pull_findings(check: str, pods: Sequence[Json]) -> Iterator[Finding]:
    """One finding per image that does not come, with the pods that wait for it."""
    waiting: dict[str, tuple[str, list[str]]] = {}
    for pod in pods:
        for image, why in look.pull_problems(pod):
            waiting.setdefault(image, (why, []))[1].append(f"{pod['metadata']['namespace']}/{look.name_of(pod)}")
    for image, (why, names_) in waiting.items():
        more = f" and {len(names_) - 1} more" if len(names_) > 1 else ""
        what = f"image {image} does not come to pod {names_[0]}{more}: {why}"
        remedy = "is the name right, may the node reach the registry, does the pod have imagePullSecrets?"
        yield Finding(check, "failed", what, remedy)


def _unread(check: str, what: str, unread: Unread) -> Finding:
    return Finding(check, "warning", f"cannot tell: {what} could not be read: {unread.why}", "ask somebody who may")

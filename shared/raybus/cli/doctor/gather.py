"""Reading what `raybus doctor` judges, from a cluster and from NATS. No judgement here: what cannot be read is Unread."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from raybus.api import crds
from raybus.bus.nats import NatsBus
from raybus.bus.streams import HISTORY_STREAM, OBJECT_STREAMS
from raybus.bus.transport import BusError, StreamMissing
from raybus.cli.doctor import look, rights
from raybus.cli.doctor.facts import (
    Answer,
    Cluster,
    Installation,
    Json,
    Nats,
    Objects,
    Operator,
    Request,
    Review,
    Server,
    Unread,
)
from raybus.decide.rights import REFERENCE_LEASE
from raybus.domain import labels
from raybus.domain.kinds import CRD, JOB, LEASE, NODE, POD, Kind
from raybus.kube.errors import KubeError, NotFound
from raybus.kube.pages import PageClient
from raybus.runtime import coexistence, neighbours
from raybus.runtime.connections import StartError

REACH_S = 10.0
ASK_S = 5.0
NATS_S = 10.0
NODES_ASKED = 5
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets")
CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
REVIEW = Kind("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)
EVENT = Kind("", "v1", "Event", "events")
NOT_BEGUN = frozenset({"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"})
HEALTH_PORT = 8080


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsAddress:
    """Where to ask NATS directly, and how to prove who we are; each as the services' flag of that name."""

    url: str
    nkey_file: str = ""
    credentials_file: str = ""
    ca_file: str = ""
    inbox_prefix: str = "_INBOX"


async def cluster(client: PageClient, namespace: str | None, *, expected: bool, nats: NatsAddress | None) -> Cluster:
    """All facts. `namespace`: where the installation is, None to look everywhere; `expected`: whether there should be one."""
    server = await _server(client)
    if server.error:
        return Cluster(server=server, now=_now(server))
    uid, definitions, installations, direct = await asyncio.gather(
        _uid(client),
        _definitions(client),
        _installations(client, namespace) if expected else _nothing(),
        _nats(nats) if nats else _none(),
    )
    operators, nodes, domains, dns_pods, ray_pods = await asyncio.gather(
        _operators(client, _now(server)),
        _objects(client, LEASE, "kube-node-lease"),
        _domains(client),
        _objects(client, POD, "kube-system", selector="k8s-app=kube-dns"),
        _objects(client, POD, selector=labels.CLUSTER),
    )
    return Cluster(
        server=server,
        now=_now(server),  # when all has been read: what was renewed meanwhile is not ahead of its time
        uid=uid,
        definitions=definitions,
        installations=installations,
        expected=expected,
        operators=operators,
        node_leases=nodes,
        domains=domains,
        dns_pods=dns_pods,
        ray_pods=ray_pods,
        nats=direct,
    )


def _now(server: Server) -> dt.datetime:
    """By the API server's clock."""
    return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=server.ahead_s or 0)


async def _nothing() -> tuple[Installation, ...]:
    return ()


async def _none() -> None:
    return None


async def _server(client: PageClient) -> Server:
    url = client.config.server
    try:
        page = await client.page("/version", timeout_s=REACH_S)
        if page.status != 200:
            return Server(url=url, error=f"GET /version was answered with {page.status}: {_text(page.body)}")
        return Server(url=url, version=orjson.loads(page.body)["gitVersion"], ahead_s=page.ahead_s)
    except KubeError as error:
        return Server(url=url, error=error.message)
    except (orjson.JSONDecodeError, KeyError):
        return Server(url=url, error="what answers there is not a Kubernetes API server")


def _text(body: bytes) -> str:
    """In the server's own words where it says them as Kubernetes does."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip()[:200]


async def _uid(client: PageClient) -> str:
    try:
        return await client.cluster_uid()
    except KubeError:
        return ""


async def _definitions(client: PageClient) -> Mapping[str, Json | None] | Unread:
    found: dict[str, Json | None] = {}
    try:
        for name in (each["metadata"]["name"] for each in crds.build()):
            try:
                found[name] = await client.get(CRD, None, name)
            except NotFound:
                found[name] = None
    except KubeError as error:
        return Unread(error.message)
    return found


async def _objects(
    client: PageClient, kind: Kind, namespace: str | None = None, *, selector: str = "", fields: str = ""
) -> Objects:
    try:
        return await client.list_all(kind, namespace, label_selector=selector, field_selector=fields)
    except KubeError as error:
        return Unread(error.message)


async def _operators(client: PageClient, now: dt.datetime) -> Sequence[Operator] | Unread:
    leases = await _objects(client, LEASE, fields=f"metadata.name={REFERENCE_LEASE}")
    if isinstance(leases, Unread):
        return leases
    leaders = [found for lease in leases if (found := coexistence.leader(lease, now))]
    try:
        return [Operator(leader, await neighbours.watched(client, leader)) for leader in leaders]
    except StartError as error:
        return Unread(str(error))


# Installations


async def _installations(client: PageClient, namespace: str | None) -> Sequence[Installation] | Unread:
    deployments = await _objects(client, DEPLOYMENT, namespace, selector="app.kubernetes.io/part-of=raybus")
    if isinstance(deployments, Unread):
        return deployments
    releases: dict[tuple[str, str], list[Json]] = {}
    for each in deployments:
        where = each["metadata"]["namespace"], look.labels_of(each).get(look.INSTANCE, "")
        releases.setdefault(where, []).append(each)
    return [await _installation(client, *where, found) for where, found in sorted(releases.items())]


async def _installation(client: PageClient, namespace: str, name: str, deployments: Sequence[Json]) -> Installation:
    selector = f"{look.INSTANCE}={name},app.kubernetes.io/part-of=raybus"
    pods, sets, jobs, claims, warnings, reviews = await asyncio.gather(
        _objects(client, POD, namespace, selector=selector),
        _objects(client, STATEFUL_SET, namespace, selector=selector),
        _objects(client, JOB, namespace, selector=selector),
        _objects(client, CLAIM, namespace, selector=f"{look.INSTANCE}={name},{look.COMPONENT}=nats"),
        _warnings(client, namespace),
        _reviews(client, deployments),
    )
    services = {look.component_of(each) for each in deployments}
    return Installation(
        namespace=namespace,
        name=name,
        deployments=deployments,
        stateful_sets=() if isinstance(sets, Unread) else sets,
        jobs=() if isinstance(jobs, Unread) else jobs,
        pods=pods,
        claims=claims,
        answers={} if isinstance(pods, Unread) else await _answers(client, pods, services),
        warnings=warnings,
        reviews=reviews,
    )


async def _warnings(client: PageClient, namespace: str) -> Mapping[str, str]:
    """Of pods whose containers cannot be made: a Secret that is missing, say, stands nowhere in the pod."""
    events = await _objects(client, EVENT, namespace, fields="involvedObject.kind=Pod,type=Warning")
    found = [] if isinstance(events, Unread) else [each for each in events if each.get("reason") in NOT_BEGUN]
    found.sort(key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""))
    return {each["involvedObject"]["name"]: str(each.get("message", "")) for each in found}


async def _answers(client: PageClient, pods: Sequence[Json], services: set[str]) -> dict[str, Answer]:
    """What the running pods of the services say of themselves."""
    asked = [
        pod
        for pod in pods
        if look.component_of(pod) in services
        and not look.is_over(pod)
        and any("running" in (each.get("state") or {}) for each in look.container_statuses(pod))
    ]
    said = await asyncio.gather(*(_answer(client, pod) for pod in asked))
    return {look.name_of(pod): answer for pod, answer in zip(asked, said, strict=True)}


async def _answer(client: PageClient, pod: Json) -> Answer:
    where = f"{POD.path(pod['metadata']['namespace'], look.name_of(pod))}:{HEALTH_PORT}/proxy/readyz"
    try:
        page = await client.page(where, timeout_s=ASK_S)
        checks = json.loads(page.body)["checks"]
        return Answer(checks=checks, ahead_s=page.ahead_s)
    except KubeError as error:
        return Answer(error=error.message)
    except (ValueError, KeyError, TypeError):
        return Answer(error=f"{page.status}: {_text(page.body)}")


async def _reviews(client: PageClient, deployments: Iterable[Json]) -> Sequence[Review] | Unread:
    table = rights.table()
    wanted = [(request, True) for each in deployments for request in rights.requests(each, table)]
    wanted += [(request, False) for each in deployments for request in rights.forbidden(each)]
    try:
        allowed = await asyncio.gather(*(_allowed(client, request) for request, _ in wanted))
    except KubeError as error:
        return Unread(error.message)
    return [
        Review(request=request, allowed=answer, wanted=wish)
        for (request, wish), answer in zip(wanted, allowed, strict=True)
    ]


async def _allowed(client: PageClient, request: Request) -> bool:
    attributes = {
        "verb": request.verb,
        "group": request.group,
        "resource": request.resource,
        "subresource": request.subresource,
        "name": request.name,
        "namespace": request.namespace,
    }
    body = {
        "apiVersion": REVIEW.api_version,
        "kind": REVIEW.kind,
        "metadata": {},
        "spec": {
            "user": f"system:serviceaccount:{request.account_namespace}:{request.account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{request.account_namespace}",
                "system:authenticated",
            ],
            "resourceAttributes": {name: value for name, value in attributes.items() if value},
        },
    }
    answer = await client.create(REVIEW, body)
    return bool(answer["status"]["allowed"])


# DNS


async def _domains(client: PageClient) -> Mapping[str, str] | Unread:
    """Of a few nodes: the domain that their kubelet puts into pods' resolv.conf."""
    nodes = await _objects(client, NODE)
    if isinstance(nodes, Unread):
        return nodes
    found: dict[str, str] = {}
    for node in nodes[:NODES_ASKED]:
        try:
            said: dict[str, Any] = await client.request(
                "GET", NODE.path(None, look.name_of(node), "proxy/configz"), timeout_s=ASK_S
            )
            found[look.name_of(node)] = str(said["kubeletconfig"].get("clusterDomain", ""))
        except KubeError as error:
            return Unread(error.message)
    return found


# NATS


async def _nats(address: NatsAddress) -> Nats:
    try:
        tls = ssl.create_default_context(cafile=address.ca_file) if address.ca_file else None
    except (OSError, ssl.SSLError) as error:
        return Nats(url=address.url, error=f"{address.ca_file}: {error}")
    bus = NatsBus(
        [url.strip() for url in address.url.split(",")],
        name="raybus doctor",
        inbox_prefix=address.inbox_prefix,
        tls=tls,
        nkeys_seed=address.nkey_file or None,
        credentials=address.credentials_file or None,
    )
    streams: dict[str, Mapping[str, str] | None] = {}
    try:
        await bus.connect(NATS_S)
        for name in (*OBJECT_STREAMS.values(), HISTORY_STREAM):
            try:
                streams[name] = (await bus.stream_info(name)).metadata
            except StreamMissing:
                streams[name] = None
    except BusError as error:
        return Nats(url=address.url, error=str(error))
    finally:
        await bus.close()
    return Nats(url=address.url, streams=streams)

"""What the facts of an installation by the chart mean: workloads and their pods, images, rights, NATS. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from raybus.cli.doctor import look
from raybus.cli.doctor.facts import Answer, Cluster, Finding, Installation, Json, Nats, Request, Unread
from raybus.domain.times import parse

RESTARTS = 3
STARTS = timedelta(seconds=60)  # as long a pod may take until it is ready
SHOWN = 6
CHART = "helm upgrade --install raybus deploy/helm/raybus --namespace raybus-system --create-namespace"


def findings(facts: Cluster) -> Iterator[Finding]:
    if not facts.expected:
        yield from _nats(facts)
        return
    if isinstance(facts.installations, Unread):
        what = f"cannot tell: deployments could not be listed: {facts.installations.why}"
        yield Finding("installation", "warning", what, "name the namespace with -n, or ask somebody who may")
        return
    if not facts.installations:
        yield Finding("installation", "failed", "there is none: no deployment has the chart's labels", CHART)
    for one in facts.installations:
        yield from workloads(one)
        yield from pods(one, facts.now)
        yield from rights(one)
    yield from _nats(facts)


def _title(one: Installation) -> str:
    return f"installation {one.namespace}/{one.name}"


# Workloads


def workloads(one: Installation) -> Iterator[Finding]:
    good = []
    for workload in (*one.deployments, *one.stateful_sets):
        wanted = int(workload["spec"].get("replicas", 1))
        ready = int((workload.get("status") or {}).get("readyReplicas") or 0)
        if wanted and ready >= wanted:
            good.append(f"{look.component_of(workload)} {ready}")
        else:
            yield _short(one, workload, wanted, ready)
    if good:
        yield Finding(_title(one), "ok", f"ready: {', '.join(good)}")
    for job in one.jobs:
        failed = look.condition(job, "Failed") or {}
        if failed.get("status") == "True":
            what = f"job {look.name_of(job)} failed: {failed.get('message') or failed.get('reason', '')}"
            remedy = f"kubectl -n {one.namespace} logs job/{look.name_of(job)}; mend it, then helm upgrade"
            yield Finding(_title(one), "failed", what, remedy)


def _short(one: Installation, workload: Json, wanted: int, ready: int) -> Finding:
    kind = "statefulset" if "serviceName" in workload["spec"] else "deployment"
    where = f"kubectl -n {one.namespace} scale {kind} {look.name_of(workload)} --replicas=2"
    if not wanted:
        return Finding(_title(one), "warning", f"{look.component_of(workload)} is scaled to 0: it does nothing", where)
    creation = look.condition(workload, "ReplicaFailure") or {}
    why = f": {creation['message']}" if creation.get("status") == "True" else ""
    what = f"{look.component_of(workload)}: {ready} of {wanted} replicas are ready{why}"
    if not why and isinstance(one.pods, Unread):
        why = f"; its pods could not be read: {one.pods.why}"
    remedy = f"kubectl -n {one.namespace} describe {kind} {look.name_of(workload)}" if why else "see its pods below"
    return Finding(_title(one), "warning" if ready else "failed", what, remedy)


# Pods


def pods(one: Installation, now: datetime) -> Iterator[Finding]:
    if isinstance(one.pods, Unread):
        return
    for image, waiting in _missing_images(one.pods).items():
        yield _missing_image(one, image, *waiting)
    for pod in one.pods:
        yield from _pod(one, pod, now)
    if not isinstance(one.claims, Unread):
        for claim in one.claims:
            yield from _claim(one, claim)


def _missing_images(found: Sequence[Json]) -> dict[str, tuple[str, str]]:
    return {image: (look.name_of(pod), why) for pod in found for image, why in look.pull_problems(pod)}


def _missing_image(one: Installation, image: str, pod: str, why: str) -> Finding:
    what = f"image {image} does not come to pod {pod}: {why}"
    remedy = "set image.repository, image.tag or imagePullSecrets, or load the image on the nodes; then helm upgrade"
    return Finding(_title(one), "failed", what, remedy)


def _pod(one: Installation, pod: Json, now: datetime) -> Iterator[Finding]:
    if look.is_over(pod):
        return
    again, why = look.restarts(pod)
    if again >= RESTARTS:
        what = f"pod {look.name_of(pod)} was restarted {again} times{f', last for {why}' if why else ''}"
        remedy = "raise resources.limits.memory" if why == "OOMKilled" else f"{_logs(one, pod)} --previous"
        yield Finding(_title(one), "warning", what, remedy)
    if look.is_ready(pod) or any(look.pull_problems(pod)):
        return
    begun = look.has_begun(pod)
    warning = "" if begun else one.warnings.get(look.name_of(pod), "")
    words = _unready(one.answers.get(look.name_of(pod))) or warning or look.why_not_ready(pod) or "not ready (yet)"
    started = parse((pod.get("status") or {}).get("startTime"))
    young = started is not None and now - started < STARTS
    what = f"pod {look.name_of(pod)}{', just started' if young else ''}: {words}"
    remedy = _logs(one, pod) if begun else f"kubectl -n {one.namespace} describe pod {look.name_of(pod)}"
    if "secret" in warning and "not found" in warning and not any(look.is_at_work(job) for job in one.jobs):
        remedy = "a helm upgrade with the same values makes the Secrets of NATS again; others are yours to make"
    yield Finding(_title(one), "warning" if young else "failed", what, remedy)


def _unready(answer: Answer | None) -> str:
    """In the service's own words."""
    wrong = {} if answer is None else {name: each for name, each in answer.checks.items() if not each.get("ok")}
    return "; ".join(f"{name}: {each.get('detail') or 'does not hold'}" for name, each in wrong.items())


def _logs(one: Installation, pod: Json) -> str:
    return f"kubectl -n {one.namespace} logs {look.name_of(pod)}"


def _claim(one: Installation, claim: Json) -> Iterator[Finding]:
    phase = (claim.get("status") or {}).get("phase")
    if phase != "Bound":
        wanted = claim["spec"].get("storageClassName")
        what = f"volume claim {look.name_of(claim)} is {phase}" + (f", storage class {wanted}" if wanted else "")
        remedy = (
            "set nats.persistence.storageClassName to one of `kubectl get storageclass`, or persistence.enabled=false"
        )
        yield Finding(_title(one), "failed", what, remedy)


# Rights


def rights(one: Installation) -> Iterator[Finding]:
    check = f"rights {one.namespace}/{one.name}"
    if isinstance(one.reviews, Unread):
        what = f"cannot tell: rights of service accounts could not be asked for: {one.reviews.why}"
        yield Finding(check, "warning", what, "ask somebody who may create subjectaccessreviews")
        return
    wrong = [review for review in one.reviews if review.allowed != review.wanted]
    missing: dict[str, list[Request]] = {}
    for review in wrong:
        if review.wanted:
            missing.setdefault(review.request.component, []).append(review.request)
    for component, requests in missing.items():
        yield _lacking(check, component, requests)
    for review in wrong:
        if not review.wanted:
            what = f"{review.request.component} may {_words(review.request)}, which it never needs"
            yield Finding(check, "warning", what, f"take that right from service account {review.request.account}")
    if one.reviews and not wrong:
        yield Finding(check, "ok", f"all {len(one.reviews)} requests asked for are answered as they should be")


def _lacking(check: str, component: str, requests: Sequence[Request]) -> Finding:
    words = [_words(request) for request in requests]
    more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    account = f"service account {requests[0].account_namespace}/{requests[0].account}"
    what = f"{component} may not {', '.join(words[:SHOWN])}{more}"
    return Finding(
        check,
        "failed",
        what,
        f"helm upgrade with rbac.create=true (and --force-conflicts where roles were changed by hand), or give {account} these rights",
    )


def _words(request: Request) -> str:
    resource = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    group = f".{request.group}" if request.group else ""
    name = f" {request.name}" if request.name else ""
    return f"{request.verb} {resource}{group}{name}" + (f" in {request.namespace}" if request.namespace else "")


# NATS


def _nats(facts: Cluster) -> Iterator[Finding]:
    if facts.nats is not None:
        yield from asked_directly(facts.nats, facts.uid)
    elif not isinstance(facts.installations, Unread):
        for one in facts.installations:
            yield from through_services(one)


def through_services(one: Installation) -> Iterator[Finding]:
    """What the services say of their connection."""
    check = f"NATS {one.namespace}/{one.name}"
    heard = {name: answer.checks["nats"] for name, answer in one.answers.items() if "nats" in answer.checks}
    for name, said in heard.items():
        if not said.get("ok"):
            remedy = f"is NATS up and may the pod reach it? kubectl -n {one.namespace} get pods,networkpolicies"
            yield Finding(check, "failed", f"pod {name}: {said.get('detail')}", remedy)
    if heard and all(said.get("ok") for said in heard.values()):
        yield Finding(check, "ok", f"{len(heard)} pods are connected, with their streams")
    ready = set() if isinstance(one.pods, Unread) else {look.name_of(pod) for pod in one.pods if look.is_ready(pod)}
    silent = {name: answer.error for name, answer in one.answers.items() if answer.error and name in ready}
    for name, error in list(silent.items())[:1]:
        what = f"cannot tell: {len(silent)} ready pods could not be asked through the API server, {name}: {error}"
        yield Finding(check, "warning", what, "allow the API server in networkPolicy.metricsFrom, or give --nats-url")


def asked_directly(nats: Nats, uid: str) -> Iterator[Finding]:
    if nats.error:
        remedy = "check --nats-url, --nats-nkey-file or --nats-credentials-file, and --nats-ca-file"
        yield Finding("NATS", "failed", f"{nats.url}: {nats.error}", remedy)
        return
    missing = [name for name, metadata in nats.streams.items() if metadata is None]
    if missing:
        remedy = "the gateway makes them within 10 s: look at its log"
        yield Finding("NATS", "failed", f"{nats.url} has no stream {', '.join(missing)}", remedy)
    signed = {
        name: metadata["raybus.cluster"]
        for name, metadata in nats.streams.items()
        if metadata and "raybus.cluster" in metadata
    }
    foreign = {name: owner for name, owner in signed.items() if uid and owner != uid}
    for name, owner in foreign.items():
        what = f"stream {name} is of another cluster ({owner}, this one is {uid})"
        yield Finding("NATS", "failed", what, "give each cluster a NATS account of its own")
    if not missing and not foreign:
        yield Finding("NATS", "ok", f"{nats.url} has all {len(nats.streams)} streams, signed by this cluster")

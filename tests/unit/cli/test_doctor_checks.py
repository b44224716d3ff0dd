"""What `raybus doctor` makes of the facts of a cluster: for each subject what is good, what is bad, and what it says then.

One module, although long: every test spoils something of the same sound installation.
"""

from __future__ import annotations

import copy
import datetime as dt
from typing import Any

import pytest

from raybus.api import crds
from raybus.cli.doctor import checks, report, rights
from raybus.cli.doctor.facts import Answer, Cluster, Finding, Installation, Nats, Operator, Review, Server, Unread
from raybus.runtime.coexistence import Leader, Watched

NOW = dt.datetime(2026, 1, 1, 12, 0, tzinfo=dt.UTC)
ESTABLISHED = {"conditions": [{"type": "Established", "status": "True"}]}


BUILT = {each["metadata"]["name"]: {**each, "status": ESTABLISHED} for each in crds.build()}


def definitions() -> dict[str, Any]:
    """As installed; those that a test changes are its own."""
    return BUILT | {"rayjobs.ray.io": copy.deepcopy(BUILT["rayjobs.ray.io"])}


def cluster(**changed: Any) -> Cluster:
    """A cluster in which all is well, but for what is given."""
    facts: dict[str, Any] = {
        "server": Server(url="https://k:6443", version="v1.36.3", ahead_s=0.2),
        "now": NOW,
        "uid": "uid-1",
        "definitions": definitions(),
        "installations": (installation(),),
        "node_leases": (node_lease("node-1", "2026-01-01T11:59:55.000000Z"),),
        "domains": {"node-1": "cluster.local"},
        "ray_pods": (pod("head", labels={}),),
    }
    return Cluster(**(facts | changed))


def installation(**changed: Any) -> Installation:
    facts: dict[str, Any] = {
        "namespace": "raybus",
        "name": "rb",
        "deployments": (deployment("gateway"), deployment("job-ctrl")),
        "stateful_sets": (stateful_set(),),
        "pods": (pod("gw"), pod("nats-0", "nats")),
        "claims": ({"metadata": {"name": "data-nats-0"}, "spec": {}, "status": {"phase": "Bound"}},),
        "answers": {"gw": Answer(checks={"nats": {"ok": True, "detail": ""}}, ahead_s=0.9)},
        "reviews": tuple(Review(request=each, allowed=True) for each in wanted("job-ctrl")),
    }
    return Installation(**(facts | changed))


def wanted(component: str, **env: str) -> list[Any]:
    return rights.requests(deployment(component, **env), rights.table())


def deployment(component: str, ready: int = 2, replicas: int = 2, **env: str) -> dict[str, Any]:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    variables.append({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    pod_spec = {"serviceAccountName": f"rb-{component}", "containers": [{"name": component, "env": variables}]}
    return {
        "metadata": {
            "name": f"rb-{component}",
            "namespace": "raybus",
            "labels": {"app.kubernetes.io/component": component, "app.kubernetes.io/instance": "rb"},
        },
        "spec": {"replicas": replicas, "template": {"spec": pod_spec}},
        "status": {"readyReplicas": ready},
    }


def stateful_set(ready: int = 1) -> dict[str, Any]:
    found = deployment("nats", ready, 1)
    found["spec"]["serviceName"] = "rb-nats"
    return found


def pod(
    name: str,
    component: str = "gateway",
    *,
    ready: bool = True,
    waiting: dict[str, str] | None = None,
    last: dict[str, Any] | None = None,
    restarts: int = 0,
    **metadata: Any,
) -> dict[str, Any]:
    state = {"waiting": waiting} if waiting else {"running": {}}
    container = {"name": "main", "image": "raybus/raybus:9", "state": state, "restartCount": restarts}
    container["lastState"] = {"terminated": last} if last else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "raybus",
            "labels": {"app.kubernetes.io/component": component},
            **metadata,
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [container],
        },
    }


def node_lease(name: str, renewed: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": {"renewTime": renewed}}


def operator(*namespaces: str) -> Operator:
    """One that looks after these namespaces, or all."""
    leader = Leader(namespace="kuberay", holder="kuberay-operator-1_0f", renewed=NOW)
    return Operator(leader, Watched(namespaces=frozenset(namespaces), why="its --watch-namespace"))


def bad(facts: Cluster) -> list[Finding]:
    return [each for each in checks.findings(facts) if each.level != "ok"]


def only(facts: Cluster) -> Finding:
    """The one thing that is wrong."""
    found = bad(facts)
    assert len(found) == 1, found
    assert found[0].remedy
    return found[0]


def test_all_is_well():
    found = checks.findings(cluster())
    assert {each.level for each in found} == {"ok"}
    assert [each.check for each in found] == [
        "API server", "definitions", "other operator", "installation raybus/rb", "rights raybus/rb", "NATS raybus/rb",
        "clocks", "DNS", "images of Ray",
    ]  # fmt: skip
    assert report.exit_code(found) == 0


def test_a_silent_api_server_is_the_only_thing_to_say():
    found = checks.findings(Cluster(server=Server(url="https://k", error="connection refused"), now=NOW))
    assert [(each.check, each.level) for each in found] == [("API server", "failed")]
    assert "connection refused" in found[0].what
    assert report.exit_code(found) == 1


# Definitions


def test_a_missing_definition():
    finding = only(cluster(definitions=definitions() | {"rayjobs.ray.io": None}))
    assert (finding.level, finding.what) == ("failed", "missing: rayjobs.ray.io")
    assert finding.remedy == "raybus crds | kubectl apply --server-side -f -"


def test_who_installs_next_does_not_make_the_definitions_by_hand():
    """Those would count as somebody else's, and no upgrade would touch them."""
    found = bad(cluster(definitions=dict.fromkeys(definitions()), installations=()))
    assert [(each.check, "raybus crds" in each.remedy) for each in found] == [
        ("definitions", False),
        ("installation", False),
    ]


def test_a_provisioner_at_work_makes_the_definitions():
    at_work = {"metadata": {"name": "p"}, "status": {}}
    finding = only(cluster(definitions=dict.fromkeys(definitions()), installations=(installation(jobs=(at_work,)),)))
    assert finding.remedy == "the installation makes them"


def changed_definition(change: Any) -> Cluster:
    found = definitions()
    change(found["rayjobs.ray.io"])
    return cluster(definitions=found)


def of_v1(definition: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in definition["spec"]["versions"] if each["name"] == "v1")


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        (lambda found: found.update(status={}), "failed", "not served"),
        (lambda found: found["metadata"].update(deletionTimestamp="2026-11-30T00:00:00Z"), "failed", "is being deleted"),
        (lambda found: of_v1(found).update(served=False), "failed", "does not serve version v1"),
        (lambda found: found["spec"].update(versions=found["spec"]["versions"][1:]), "failed", "does not serve"),
        (lambda found: of_v1(found).pop("subresources"), "failed", "no status subresource"),
        (lambda found: [each.update(storage=not each["storage"]) for each in found["spec"]["versions"]], "warning", "stores version v1alpha1"),
    ],
)  # fmt: skip
def test_a_definition_that_cannot_be_worked_with(change, level, words):
    finding = only(changed_definition(change))
    assert finding.level == level
    assert words in finding.what
    if finding.remedy.startswith("raybus crds"):
        assert "--force-conflicts" in finding.remedy  # else the API server protects the fields of who made it


def spec_of(definition: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = of_v1(definition)["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def test_an_older_definition_drops_fields():
    def older(found: dict[str, Any]) -> None:
        del spec_of(found)["properties"]["deletionStrategy"]
        del spec_of(found)["properties"]["rayClusterSpec"]["properties"]["workerGroupSpecs"]["items"]["properties"][
            "replicas"
        ]

    finding = only(changed_definition(older))
    assert finding.level == "warning"
    assert "lacks spec.deletionStrategy, spec.rayClusterSpec.workerGroupSpecs.replicas:" in finding.what
    assert "--force-conflicts" in finding.remedy


def test_a_definition_that_keeps_all_fields_lacks_none():
    def lax(found: dict[str, Any]) -> None:
        spec = of_v1(found)["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec.clear()
        spec.update({"type": "object", "x-kubernetes-preserve-unknown-fields": True})

    assert not bad(changed_definition(lax))


# The other operator


@pytest.mark.parametrize(
    ("ours", "theirs", "level", "words"),
    [
        ("", (), "failed", "looks after all namespaces as Raybus does"),
        ("a, b", (), "failed", "looks after namespaces a, b as Raybus does"),
        ("", ("a",), "failed", "looks after namespaces a as Raybus does (its --watch-namespace)"),
        ("a,b", ("b", "c"), "failed", "looks after namespaces b as Raybus does"),
        ("a,b", ("c",), "ok", "on other namespaces: c"),
    ],
)
def test_a_live_operator_of_kuberay(ours, theirs, level, words):
    one = installation(deployments=(deployment("job-ctrl", RAYBUS_NAMESPACES=ours),))
    [finding] = checks.other_operator(cluster(installations=(one,), operators=(operator(*theirs),)))
    assert finding.level == level
    assert "(kuberay-operator-1_0f in namespace kuberay)" in finding.what
    assert words in finding.what


def test_whoever_was_told_to_take_over_is_warned():
    one = installation(deployments=(deployment("job-ctrl", RAYBUS_TAKE_OVER="true"),))
    assert only(cluster(installations=(one,), operators=(operator(),))).level == "warning"


def test_from_outside_a_live_operator_is_always_in_the_way():
    assert only(cluster(expected=False, installations=(), operators=(operator(),))).level == "failed"


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [("", "", "all namespaces"), ("a,b", "", "namespaces a, b"), ("a,b", "b,c", "namespaces b"), ("a", "b", "")],
)
def test_two_installations_do_not_share_a_namespace(ours, theirs, words):
    both = [
        installation(
            name=name, deployments=(deployment("gateway", RAYBUS_NAMESPACES=namespaces),), reviews=(), answers={}
        )
        for name, namespaces in (("rb", ours), ("other", theirs))
    ]
    found = [each.what for each in bad(cluster(installations=both))]
    assert found == ([f"raybus/rb and raybus/other both look after {words}"] if words else [])


# Installations


def test_no_installation():
    finding = only(cluster(installations=()))
    assert finding.what.startswith("there is none")
    assert "helm upgrade --install" in finding.remedy
    assert not bad(cluster(installations=(), expected=False))


def test_a_service_without_a_ready_replica_and_why_in_its_own_words():
    checks_ = {
        "nats": {"ok": True, "detail": ""},
        "markers": {"ok": False, "detail": "the gateway last vouched for Pod: never"},
    }
    one = installation(
        deployments=(deployment("job-ctrl", ready=0),),
        pods=(pod("jc", ready=False),),
        answers={"jc": Answer(checks=checks_)},
    )
    words = [each.what for each in bad(cluster(installations=(one,)))]
    assert words == ["job-ctrl: 0 of 2 replicas are ready", "pod jc: markers: the gateway last vouched for Pod: never"]


def test_fewer_replicas_than_wanted_only_warn():
    one = installation(deployments=(deployment("job-ctrl", ready=1),))
    assert only(cluster(installations=(one,))).level == "warning"


def test_a_deployment_that_cannot_make_pods_says_why():
    lame = deployment("job-ctrl", ready=0)
    lame["status"]["conditions"] = [{"type": "ReplicaFailure", "status": "True", "message": "serviceaccount not found"}]
    assert "serviceaccount not found" in only(cluster(installations=(installation(deployments=(lame,)),))).what


def test_a_service_that_is_scaled_to_nothing():
    one = installation(deployments=(deployment("gateway", ready=0, replicas=0),))
    assert "scaled to 0" in only(cluster(installations=(one,))).what


def test_a_failed_job_of_the_provisioner():
    job = {"metadata": {"name": "rb-provisioner-1"}, "status": {"conditions": [{"type": "Failed", "status": "True", "message": "BackoffLimitExceeded"}]}}  # fmt: skip
    finding = only(cluster(installations=(installation(jobs=(job,)),)))
    assert "rb-provisioner-1 failed: BackoffLimitExceeded" in finding.what
    assert "logs job/rb-provisioner-1" in finding.remedy


@pytest.mark.parametrize(
    ("change", "level", "what", "remedy"),
    [
        ({"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}, "failed", "image raybus/raybus:9 does not come to pod gw: ImagePullBackOff: back-off", "image.repository"),
        ({"waiting": {"reason": "CrashLoopBackOff"}, "last": {"exitCode": 1, "reason": "Error", "message": "starting\nno seed\n"}}, "failed", "ended with code 1 (Error: no seed)", "logs gw"),
        ({"waiting": {"reason": "ContainerCreating"}}, "failed", "ContainerCreating", "describe pod gw"),
        ({"ready": True, "restarts": 7, "last": {"reason": "OOMKilled"}}, "warning", "restarted 7 times, last for OOMKilled", "memory"),
    ],
)  # fmt: skip
def test_a_pod_that_is_not_well(change, level, what, remedy):
    one = installation(pods=(pod("gw", **{"ready": False, **change}),), answers={})
    finding = only(cluster(installations=(one,)))
    assert finding.level == level
    assert what in finding.what
    assert remedy in finding.remedy


def test_a_pod_that_ended_and_is_not_begun_again_yet():
    ended = pod("gw", ready=False)
    ended["status"]["containerStatuses"][0]["state"] = {
        "terminated": {"exitCode": 4, "reason": "Error", "message": "no CA"}
    }
    finding = only(cluster(installations=(installation(pods=(ended,), answers={}),)))
    assert "container main ended with code 4 (Error: no CA)" in finding.what
    assert "logs gw" in finding.remedy


@pytest.mark.parametrize(("ends", "remedy"), [("Complete", "helm upgrade"), ("", "describe pod gw")])
def test_a_secret_that_is_missing_is_named_and_who_makes_it(ends, remedy):
    """The pod itself says no more than ContainerCreating. While the provisioner is at work there is nothing to do."""
    job = {"metadata": {"name": "p"}, "status": {"conditions": [{"type": ends, "status": "True"}]}}
    waits = pod("gw", ready=False, waiting={"reason": "ContainerCreating"})
    warnings = {"gw": 'MountVolume.SetUp failed for volume "nats" : secret "raybus-nats-gateway" not found'}
    finding = only(cluster(installations=(installation(pods=(waits,), answers={}, warnings=warnings, jobs=(job,)),)))
    assert 'secret "raybus-nats-gateway" not found' in finding.what
    assert remedy in finding.remedy


def test_an_old_warning_of_a_pod_that_has_begun_is_no_news():
    began = pod("gw", ready=False)
    finding = only(cluster(installations=(installation(pods=(began,), answers={}, warnings={"gw": "no volume"}),)))
    assert "no volume" not in finding.what


def test_a_pod_that_no_node_takes():
    waits = pod("gw", ready=False)
    waits["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes: Insufficient cpu"}]}  # fmt: skip
    assert "Insufficient cpu" in only(cluster(installations=(installation(pods=(waits,), answers={}),))).what


def test_a_pod_that_goes_need_not_be_ready():
    leaving = pod("old", ready=False, deletionTimestamp="2026-01-01T11:59:59Z")
    assert not bad(cluster(installations=(installation(pods=(pod("gw"), leaving)),)))


def test_a_claim_that_waits_for_a_volume():
    claim = {"metadata": {"name": "data-0"}, "spec": {"storageClassName": "fast"}, "status": {"phase": "Pending"}}
    finding = only(cluster(installations=(installation(claims=(claim,)),)))
    assert "data-0 is Pending, storage class fast" in finding.what
    assert "storageClassName" in finding.remedy


# Rights


def test_missing_rights_are_named_per_service():
    reviews = [
        Review(request=each, allowed=(each.resource, each.verb) != ("secrets", "get")) for each in wanted("job-ctrl")
    ]
    finding = only(cluster(installations=(installation(reviews=reviews),)))
    assert finding.level == "failed"
    assert finding.what == "job-ctrl may not get secrets"
    assert "raybus/rb-job-ctrl" in finding.remedy


def test_rights_that_no_service_may_have():
    reviews = [Review(request=each, allowed=True, wanted=False) for each in rights.forbidden(deployment("gateway"))]
    assert [each.what for each in bad(cluster(installations=(installation(reviews=reviews),)))] == [
        "gateway may get secrets, which it never needs",
        "gateway may list secrets, which it never needs",
    ]


def test_requests_follow_the_namespaces_and_the_settings():
    everywhere = wanted("job-ctrl")
    assert {each.namespace for each in everywhere} == {""}
    assert any((each.resource, each.name) == ("namespaces", "kube-system") for each in everywhere)
    assert not any(each.subresource == "proxy" for each in everywhere)
    some = wanted("job-ctrl", RAYBUS_NAMESPACES="a,b", RAYBUS_USE_KUBERNETES_PROXY="true")
    assert {each.namespace for each in some if each.resource == "rayjobs"} == {"a", "b"}
    assert {each.namespace for each in some if each.resource == "namespaces"} == {""}
    assert any((each.resource, each.subresource) == ("services", "proxy") for each in some)
    assert not rights.requests(deployment("unheard-of"), rights.table())


# NATS


def test_what_services_say_of_nats():
    one = installation(answers={"gw": Answer(checks={"nats": {"ok": False, "detail": "no connection to NATS"}})})
    finding = only(cluster(installations=(one,)))
    assert (finding.level, finding.what) == ("failed", "pod gw: no connection to NATS")


def test_services_that_cannot_be_asked():
    answers = {"gw": Answer(error="timed out"), "gw2": Answer(error="timed out")}
    one = installation(pods=(pod("gw"), pod("gw2")), answers=answers)
    finding = only(cluster(installations=(one,)))
    assert finding.level == "warning"
    assert "2 ready pods could not be asked" in finding.what


def test_a_pod_that_has_just_started_only_warns_and_need_not_answer():
    young = pod("gw", ready=False)
    young["status"]["startTime"] = "2026-01-01T11:59:30Z"
    finding = only(cluster(installations=(installation(pods=(young,), answers={"gw": Answer(error="refused")}),)))
    assert (finding.level, finding.what) == ("warning", "pod gw, just started: not ready (yet)")


@pytest.mark.parametrize(
    ("nats", "words"),
    [
        (Nats(url="tls://n", error="authorization violation"), "authorization violation"),
        (Nats(url="tls://n", streams={"RAYJOB": None, "RAYHIST": {}}), "no stream RAYJOB"),
        (Nats(url="tls://n", streams={"RAYJOB": {"raybus.cluster": "uid-9"}}), "another cluster (uid-9, this one is uid-1)"),
    ],
)  # fmt: skip
def test_nats_that_was_asked_directly(nats, words):
    finding = only(cluster(nats=nats))
    assert finding.level == "failed"
    assert words in finding.what


def test_nats_of_this_cluster():
    nats = Nats(url="tls://n", streams={"RAYJOB": {"raybus.cluster": "uid-1"}, "RAYHIST": {}})
    assert not bad(cluster(nats=nats))


# Clocks, DNS, images


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({"server": Server(url="k", version="v1", ahead_s=-9), "installations": (installation(answers={}),)}, "warning", "9 s behind this machine's"),
        ({"installations": (installation(answers={"gw": Answer(ahead_s=5.2)}),)}, "warning", "pod gw is 5 s ahead"),
        ({"installations": (installation(answers={"gw": Answer(ahead_s=-44.8)}),)}, "failed", "pod gw is 45 s behind"),
        ({"node_leases": (node_lease("n", "2026-01-01T12:00:10Z"),)}, "warning", "node n is 10 s ahead"),
        ({"node_leases": (node_lease("n", "2026-01-01T11:58:00Z"),)}, "warning", "n has not renewed its lease for 120 s"),
    ],
)  # fmt: skip
def test_clocks_that_differ(change, level, words):
    findings = [each for each in bad(cluster(**change)) if each.check == "clocks"]
    assert [each.level for each in findings] == [level]
    assert words in findings[0].what


def test_the_domain_of_the_controllers_is_that_of_the_nodes():
    assert "search corp.example" in only(cluster(domains={"node-1": "corp.example"})).what
    one = installation(deployments=(deployment("job-ctrl", RAYBUS_CLUSTER_DOMAIN="corp.example."),))
    assert not bad(cluster(domains={"node-1": "corp.example"}, installations=(one,)))


@pytest.mark.parametrize(("ready", "level"), [((False, False), "failed"), ((True, False), "warning")])
def test_dns_servers_that_do_not_answer(ready, level):
    finding = only(cluster(dns_pods=tuple(pod(f"dns-{n}", ready=each) for n, each in enumerate(ready))))
    assert (finding.check, finding.level) == ("DNS", level)
    assert f"{ready.count(False)} of 2 DNS servers are not ready" in finding.what


def test_dns_servers_that_are_well_or_unknown_are_not_spoken_of():
    leaving = pod("dns-old", ready=False, deletionTimestamp="2026-11-30T00:00:00Z")
    assert not bad(cluster(dns_pods=(pod("dns-1"), leaving)))
    assert not bad(cluster(dns_pods=()))


def test_an_image_of_ray_that_does_not_come():
    waiting = {"reason": "ErrImagePull", "message": "not found"}
    finding = only(cluster(ray_pods=(pod("w1", ready=False, waiting=waiting), pod("w2", ready=False, waiting=waiting))))
    assert finding.what == "image raybus/raybus:9 does not come to pod raybus/w1 and 1 more: ErrImagePull: not found"


# What could not be read


@pytest.mark.parametrize(
    "change",
    [
        {"definitions": Unread("forbidden")}, {"operators": Unread("forbidden")}, {"node_leases": Unread("forbidden")},
        {"domains": Unread("forbidden")}, {"dns_pods": Unread("forbidden")}, {"ray_pods": Unread("forbidden")}, {"installations": Unread("forbidden")},
        {"installations": (installation(reviews=Unread("forbidden")),)},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_what_could_not_be_read_is_a_warning_and_no_verdict(change):
    finding = only(cluster(**change))
    assert finding.level == "warning"
    assert "cannot tell" in finding.what
    assert "forbidden" in finding.what

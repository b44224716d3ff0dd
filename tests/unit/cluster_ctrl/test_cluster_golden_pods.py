"""Pods, Services and status as built, against what the reference operator made of the same inputs: the fast half of
tests/golden, without an API server. What an API server adds to a pod is taken off the expected ones.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from support.clusters import Kubernetes
from support.scripts import module

GOLDEN = Path(__file__).resolve().parents[3].parent / "shared" / "golden"
CASES = ("001-head-only", "019-overwrite-command", "021-sidecars-and-init", "029-longest-name", "043-clamped-replicas",
         "049-name-too-long", "100-job-default", "102-job-submitter-own-command", "110-job-shutdown", "118-job-failed",
         "120-job-submission-failed", "122-job-deleted-while-running")  # fmt: skip
OF_THE_SERVER = (
    "dnsPolicy", "enableServiceLinks", "preemptionPolicy", "priority", "schedulerName", "securityContext", "serviceAccount",
    "tolerations",
)  # fmt: skip
DEFAULTS = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "serviceAccountName": "default"}


@pytest.fixture(scope="module")
def compare():
    if not GOLDEN.exists():
        pytest.skip("needs ../shared/golden, the outputs of the reference operator, beside the repository")
    return module(GOLDEN / "compare.py")


def _snapshots(case):
    text = (GOLDEN / "cases" / case / "expected.json").read_text()
    return json.loads(text.replace("<c1>", "bcdfg"))  # a name that validation takes


def _clusters(snapshot):
    objects = [*snapshot["objects"], *([snapshot["subject"]] if snapshot["subject"] else [])]
    return [obj for obj in objects if obj["kind"] == "RayCluster"]


def _played(root):
    """The world after the first pass on the given input."""
    root = copy.deepcopy(root)
    root.pop("status", None)
    root["metadata"]["resourceVersion"] = "1"
    world = Kubernetes(root)
    world.reconcile()
    return world


def _as_sent(pod):
    """A pod without what the server adds, as it may or may not have been given."""
    pod = copy.deepcopy(pod)
    spec = pod["spec"]
    for key in OF_THE_SERVER:
        spec.pop(key, None)
    for key, value in DEFAULTS.items():
        if spec.get(key) == value:
            del spec[key]
    spec["volumes"] = [v for v in spec.get("volumes", ()) if not v["name"].startswith("kube-api-access")]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        _container_as_sent(container)
    return _comparable(pod)


def _container_as_sent(container):
    for key in ("terminationMessagePath", "terminationMessagePolicy"):
        container.pop(key, None)
    if container.get("imagePullPolicy") == "IfNotPresent":
        del container["imagePullPolicy"]
    mounts = container.get("volumeMounts", ())
    container["volumeMounts"] = [m for m in mounts if not m["name"].startswith("kube-api-access")]
    for entry in container.get("env", ()):
        entry.get("valueFrom", {}).get("fieldRef", {}).pop("apiVersion", None)
    for port in container.get("ports", ()):
        port.pop("protocol", None)


def _comparable(pod):
    metadata = {
        k: v for k, v in pod["metadata"].items() if k in ("generateName", "labels", "namespace", "ownerReferences")
    }
    annotations = {k: v for k, v in (pod["metadata"].get("annotations") or {}).items() if k != "raybus.io/slot"}
    spec = {k: v for k, v in pod["spec"].items() if v not in ([], {})}
    for key in ("containers", "initContainers"):
        if key in spec:
            spec[key] = [{k: v for k, v in container.items() if v not in ([], {})} for container in spec[key]]
    return {"metadata": metadata | {"annotations": annotations}, "spec": spec}


@pytest.mark.parametrize("case", CASES)
def test_pods_are_the_reference_operators(compare, case):
    snapshot = _snapshots(case)[0]
    for root in _clusters(snapshot):
        world = _played(root)
        names = compare.Names({}, "<ns>")
        ours = {_identity(pod): _as_sent(compare._clean_object(copy.deepcopy(pod), names)) for pod in world.pods()}
        expected = {_identity(pod): _as_sent(pod) for pod in _pods_of(snapshot, root["metadata"]["name"])}
        found = list(compare.differences(expected, ours, case))
        # On purpose: pods get no token of the API server, but for a head with an autoscaler.
        tokens = [difference for difference in found if difference[0].endswith("/spec/automountServiceAccountToken")]
        with_token = int(bool(root["spec"].get("enableInTreeAutoscaling")))
        assert [text for _, text in tokens] == ["unexpected false"] * (len(ours) - with_token)
        assert [difference for difference in found if difference not in tokens] == []


def _pods_of(snapshot, cluster_name):
    pods = [obj for obj in snapshot["objects"] if obj["kind"] == "Pod"]
    return [pod for pod in pods if pod["metadata"]["labels"].get("ray.io/cluster") == cluster_name]


def _identity(pod):
    marks = pod["metadata"]["labels"]
    return f"{marks['ray.io/group']}/{marks.get('ray.io/worker-group-replica-index', 0)}"


@pytest.mark.parametrize("case", [case for case in CASES if case < "1"])
def test_the_first_status_and_events_are_the_reference_operators(compare, case):
    snapshot = _snapshots(case)[0]
    (root,) = _clusters(snapshot)
    world = _played(root)
    expected = root.get("status", {})
    assert set(world.reasons()) | _announced(world) == {event["reason"] for event in snapshot["events"]}
    ours = {key: value for key, value in world.status.items() if key not in ("lastUpdateTime", "head", "conditions")}
    assert ours == {k: v for k, v in expected.items() if k not in ("lastUpdateTime", "head", "conditions")}
    conditions = [(c["type"], c["status"], c["reason"]) for c in world.status.get("conditions", ())]
    assert conditions == [(c["type"], c["status"], c["reason"]) for c in expected.get("conditions", ())]


def _announced(world):
    """Events that the executor makes of successful creations; here the objects that are there stand for them."""
    kinds = {kind for kind, _ in world.objects} - {"Pod", "Secret"}
    return {f"Created{kind}" for kind in kinds}

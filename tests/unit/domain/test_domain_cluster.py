from __future__ import annotations

import copy

import pytest

from raybus.domain import cluster_spec, cluster_validation, fingerprint, syntax

CONTAINERS = {"spec": {"containers": [{"name": "c"}]}}


def _group(name="w", **more):
    return {"groupName": name, "minReplicas": 0, "maxReplicas": 5, "replicas": 1, "template": CONTAINERS} | more


def _spec(*groups, head=None, **more):
    return {"headGroupSpec": {"template": CONTAINERS} | (head or {}), "workerGroupSpecs": list(groups)} | more


def _env(*names, value="x"):
    return {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": n, "value": value} for n in names]}]}}}


@pytest.mark.parametrize(
    ("numbers", "pods"),
    [
        ({"replicas": 5, "minReplicas": 0, "maxReplicas": 2}, 2),
        ({"replicas": 0, "minReplicas": 1, "maxReplicas": 2}, 1),
        ({"replicas": None, "minReplicas": 3, "maxReplicas": 5}, 3),
        ({"replicas": None, "minReplicas": None, "maxReplicas": None}, 0),
        ({"replicas": 2, "numOfHosts": 4}, 8),
        ({"replicas": 2, "numOfHosts": 0}, 0),
        ({"replicas": 2, "suspend": True}, 0),
    ],
)
def test_wanted_pods(numbers, pods):
    assert cluster_spec.worker_groups(_spec(_group(**numbers)))[0].wanted_pods == pods


def test_counts_leave_out_suspended_groups_and_saturate():
    groups = cluster_spec.worker_groups(
        _spec(
            _group(minReplicas=1, numOfHosts=2), _group("b", maxReplicas=None), _group("c", suspend=True, minReplicas=9)
        )
    )
    assert cluster_spec.counts(groups) == cluster_spec.Counts(desired=3, minimum=2, maximum=2147483647)


def test_desired_resources_use_replicas_as_written():
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}
    spec = _spec(
        _group(template=template, replicas=9, maxReplicas=2),
        _group("b", template=template, replicas=0, minReplicas=3),
        _group("c", template=template, replicas=4, suspend=True),
        head={"template": template},
    )
    desired = cluster_spec.desired_resources(spec, cluster_spec.worker_groups(spec))
    assert desired.printed() == {"desiredCPU": "10", "desiredMemory": "10Gi", "desiredGPU": "0", "desiredTPU": "0"}


def test_managed_by():
    assert not cluster_spec.managed_elsewhere({})
    assert not cluster_spec.managed_elsewhere({"managedBy": "ray.io/kuberay-operator"})
    assert cluster_spec.managed_elsewhere({"managedBy": "kueue.x-k8s.io/multikueue"})
    assert cluster_spec.managed_elsewhere({"managedBy": ""})


@pytest.mark.parametrize(
    ("name", "ok"),
    [("a" * 53, True), ("a" * 54, False), ("1a", False), ("A", False), ("a-", False), ("a.b", False), ("a", True)],
)
def test_cluster_names(name, ok):
    assert (cluster_validation.metadata_problem(name) == "") is ok


GOOD = [
    _spec(),
    _spec(_group(), _group("B.x-2")),
    _spec(_group(minReplicas=None, maxReplicas=None), enableInTreeAutoscaling=True),
    _spec(_group(numOfHosts=0)),
    _spec(_group(idleTimeoutSeconds=5), autoscalerOptions={"version": "v2"}),
    _spec(_group(priority=1), autoscalerOptions={"version": "v2"}, rayVersion="2.56.0"),
    _spec(authOptions={"mode": "token"}, rayVersion="2.52.0"),
    _spec(head={"labels": {"ray.io/zone": "a"}}),
    _spec(head=_env("RAY_REDIS_ADDRESS"), gcsFaultToleranceOptions=None) | {"ft": True},
]
BAD = [
    (_spec(head={"template": {"spec": {"containers": []}}}), "headGroupSpec.template.spec.containers"),
    (_spec(head={"resources": {"CPU": "1"}, "rayStartParams": {"num-cpus": "2"}}), "headGroupSpec.resources"),
    (_spec(head={"rayStartParams": {"labels": ""}}), "headGroupSpec.rayStartParams"),
    (_spec(head={"labels": {"-bad": "x", "ok": "no way"}}), "headGroupSpec.labels"),
    (_spec(_group(template={})), "workerGroupSpecs[0].template.spec.containers"),
    (_spec(_group(minReplicas=None)), "minReplicas"),
    (_spec(_group(minReplicas=-1)), "minReplicas"),
    (_spec(_group(maxReplicas=-1)), "maxReplicas"),
    (_spec(_group(), _group("b", minReplicas=9)), "workerGroupSpecs[1]"),
    (_spec(_group(numOfHosts=-1)), "numOfHosts"),
    (_spec(_group(), _group()), "'w'"),
    (_spec(_group("headgroup")), "groupName"),
    (_spec(_group("a_b")), "groupName"),
    (_spec(_group("")), "groupName"),
    (_spec(_group(idleTimeoutSeconds=-1), autoscalerOptions={"version": "v2"}), "idleTimeoutSeconds"),
    (_spec(_group(idleTimeoutSeconds=1)), "idleTimeoutSeconds"),
    (_spec(_group(priority=1), autoscalerOptions={"version": "v2"}), "priority"),
    (_spec(head=_env("RAY_REDIS_ADDRESS")), "RAY_REDIS_ADDRESS"),
    (_spec(head=_env("REDIS_PASSWORD"), gcsFaultToleranceOptions={}), "REDIS_PASSWORD"),
    (_spec(head=_env("REDIS_USERNAME")), "REDIS_USERNAME"),
    (_spec(head=_env("RAY_enable_autoscaler_v2", value="true")), "RAY_enable_autoscaler_v2"),
    (_spec(_group(suspend=True), enableInTreeAutoscaling=True), "suspended"),
    (
        _spec(
            _group(template={"spec": {"containers": [{}], "restartPolicy": "Always"}}),
            enableInTreeAutoscaling=True,
            autoscalerOptions={"version": "v2"},
        ),
        "restartPolicy",
    ),
    (_spec(autoscalerOptions={"idleTimeoutSeconds": -1}), "idleTimeoutSeconds"),
    (_spec(autoscalerOptions={"env": [{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD"}]}), "KUBERAY_GEN"),
    (_spec(authOptions={"mode": "token"}), "rayVersion"),
    (_spec(authOptions={"mode": "token"}, rayVersion="2.51"), "rayVersion"),
    (_spec(authOptions={"enableK8sTokenAuth": True}), "enableK8sTokenAuth"),
    (_spec(authOptions={"mode": "token", "enableK8sTokenAuth": True}, rayVersion="2.54"), "enableK8sTokenAuth"),
    (_spec(networkPolicy={}), "RayClusterNetworkPolicy"),
    (_spec(tlsOptions={"enabled": False}), "RayClusterMTLS"),
    (_spec(historyServerOptions={}), "RayClusterHistoryServer"),
]


@pytest.mark.parametrize("spec", GOOD)
def test_good_specs(spec):
    annotations = {"ray.io/ft-enabled": "TRUE"} if spec.pop("ft", False) else {}
    assert cluster_validation.spec_problem(spec, annotations) == ""


@pytest.mark.parametrize(("spec", "named"), BAD, ids=[named for _, named in BAD])
def test_bad_specs_name_the_field(spec, named):
    assert named in cluster_validation.spec_problem(spec, {})


def test_annotations_that_contradict_the_options():
    spec = _spec(gcsFaultToleranceOptions={})
    assert "ft-enabled" in cluster_validation.spec_problem(spec, {"ray.io/ft-enabled": "false"})
    assert "external-storage" in cluster_validation.spec_problem(spec, {"ray.io/external-storage-namespace": "x"})


def test_gates():
    spec = _spec(_group(suspend=True))
    assert cluster_validation.spec_problem(spec, {}) == ""
    assert "RayJobDeletionPolicy" in cluster_validation.spec_problem(spec, {}, gates=())
    assert cluster_validation.spec_problem(_spec(networkPolicy={}), {}, gates={"RayClusterNetworkPolicy"}) == ""


def test_upgrade_strategy():
    problem = cluster_validation.upgrade_problem
    assert problem({"upgradeStrategy": {"type": "Recreate"}}, {}) == ""
    assert "Recreate" in problem({"upgradeStrategy": {"type": "Rolling"}}, {})
    assert "RayJob" in problem({"upgradeStrategy": {"type": "None"}}, {"ray.io/originated-from-crd": "RayJob"})


def test_fingerprint_ignores_scaling_and_scheduling_and_sees_the_rest():
    spec = _spec(_group())
    base = fingerprint.recreate_hash(spec)
    assert len(base) == 32
    scaled = copy.deepcopy(spec)
    scaled["workerGroupSpecs"][0] |= {"replicas": 4, "maxReplicas": 9, "scaleStrategy": {"workersToDelete": ["x"]}}
    scaled["headGroupSpec"]["template"]["spec"]["tolerations"] = [{"key": "a"}]
    scaled["upgradeStrategy"] = {"type": "Recreate"}
    scaled["headGroupSpec"]["rayStartParams"] = {}
    assert fingerprint.recreate_hash(scaled) == base
    changed = copy.deepcopy(spec)
    changed["rayVersion"] = "2.53.0"
    assert fingerprint.recreate_hash(changed) != base
    image = copy.deepcopy(spec)
    image["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["image"] = "other"
    assert fingerprint.recreate_hash(image) != base


@pytest.mark.parametrize("key", ["a", "ray.io/group", "A_b.c", "x" * 63])
def test_good_label_keys(key):
    assert syntax.label_key_problem(key) == ""


@pytest.mark.parametrize("key", ["", "-a", "a/b/c", "UP.io/x", "/a", "x" * 64, "a "])
def test_bad_label_keys(key):
    assert key in syntax.label_key_problem(key)
    assert syntax.label_key_problem(key)

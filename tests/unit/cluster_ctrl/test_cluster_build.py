"""What pods look like. The golden cases compare whole pods; here stands what they do not reach."""

from __future__ import annotations

import copy

import pytest

from raybus.decide.actions import CreatePod
from raybus_cluster_ctrl.build import pods, target
from raybus_cluster_ctrl.decide.policy import Policy
from support.clusters import Kubernetes, actions, cluster, group

TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "ray:1"}]}}


def _head(root=None, policy=None, **spec):
    root = root or cluster(**spec)
    return pods.pod(target.head_group(target.Cluster(root), policy or Policy()), slot=0, name="head-0")


def _worker(raw=None, policy=None, root=None, **spec):
    raw = raw or group()
    root = root or cluster(raw, **spec)
    return pods.pod(target.worker_group(target.Cluster(root), raw, policy or Policy()), slot=3, name="worker-3")


def _ray(pod):
    return pod["spec"]["containers"][0]


def _env(container):
    return {entry["name"]: entry.get("value") for entry in container.get("env", ())}


def _from(container, **more):
    return {"template": {"spec": {"containers": [{"name": "c", "image": "ray:1"} | container]} | more}}


def test_worked_example():
    head = {
        "rayStartParams": {"num-cpus": "0"},
        **_from({
            "ports": [{"name": "gcs-server", "containerPort": 6379}],
            "resources": {"limits": {"cpu": "1", "memory": "5Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}},
        }),
    }  # fmt: skip
    pod = _head(headGroupSpec=head, enableInTreeAutoscaling=True, rayVersion="2.52.0")
    assert _ray(pod)["args"][0] == (
        "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; ray start --head  --block  --dashboard-agent-listen-port=52365  "
        "--dashboard-host=0.0.0.0  --memory=5368709120  --metrics-export-port=8080  --no-monitor  --num-cpus=0 "
    )
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["shared-mem", "ray-logs"]
    assert pod["spec"]["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "5Gi"}
    assert pod["spec"]["serviceAccountName"] == "demo"
    assert "restartPolicy" not in pod["spec"]
    assert [port["name"] for port in _ray(pod)["ports"]] == ["gcs-server", "metrics"]


def test_labels_of_the_template_win_but_for_three():
    marks = {
        "ray.io/cluster": "x", "ray.io/group": "x", "ray.io/node-type": "x", "app.kubernetes.io/name": "mine", "team": "a",
    }  # fmt: skip
    raw = group(template=TEMPLATE | {"metadata": {"labels": marks, "name": "dropped", "namespace": "elsewhere"}})
    metadata = _worker(raw | {"labels": {"team": "b"}})["metadata"]
    assert metadata["labels"]["ray.io/cluster"] == "demo"
    assert metadata["labels"]["ray.io/group"] == "w"
    assert metadata["labels"]["ray.io/node-type"] == "worker"
    assert metadata["labels"]["app.kubernetes.io/name"] == "mine"
    assert metadata["labels"]["team"] == "b"
    assert (metadata["name"], metadata["namespace"]) == ("worker-3", "ns1")
    assert metadata["annotations"] == {"raybus.io/slot": "3"}


def test_finalizers_of_the_template_are_kept():
    assert _worker(group(template=TEMPLATE | {"metadata": {"finalizers": ["a/b"]}}))["metadata"]["finalizers"] == [
        "a/b"
    ]


@pytest.mark.parametrize("word", ["true", "TRUE", "True"])
def test_overwrite_annotation_of_the_cluster(word):
    root = cluster(headGroupSpec=_from({"command": ["a"]}))
    root["metadata"]["annotations"] = {"ray.io/overwrite-container-cmd": word}
    pod = _head(root)
    assert _ray(pod)["command"] == ["a"]
    assert "args" not in _ray(pod)
    assert pod["metadata"]["annotations"]["ray.io/overwrite-container-cmd"] == "true"
    assert _env(_ray(pod))["KUBERAY_GEN_RAY_START_CMD"].startswith("ray start --head ")


def test_overwrite_annotation_of_the_template():
    head = _from({"command": ["a"]})
    head["template"]["metadata"] = {"annotations": {"ray.io/overwrite-container-cmd": "true"}}
    assert _ray(_head(headGroupSpec=head))["command"] == ["a"]


def test_user_command_runs_first_unless_it_starts_ray_itself():
    both = _ray(_head(headGroupSpec=_from({"command": ["echo 123"], "args": ["456"]})))
    assert both["command"] == ["/bin/bash", "-c", "--"]
    assert both["args"][0].startswith(" echo 123  456  && ulimit -n ")
    own = _ray(_head(headGroupSpec=_from({"args": ["ray start --head; sleep 1"]})))
    assert own["args"] == ["ray start --head; sleep 1"]
    assert "command" not in own


def test_probes_by_version_and_by_role():
    for version, kind in (("2.53.0", "httpGet"), ("2.52.9", "exec"), ("nightly", "exec"), (None, "exec")):
        assert kind in _ray(_head(rayVersion=version))["livenessProbe"]
    probe = _ray(_head(rayVersion="2.53.0"))["readinessProbe"]
    assert probe == {
        "httpGet": {"path": "/api/healthz", "port": 52365},
        "initialDelaySeconds": 10, "timeoutSeconds": 5, "periodSeconds": 5, "successThreshold": 1, "failureThreshold": 10,
    }  # fmt: skip
    command = _ray(_worker())["livenessProbe"]["exec"]["command"][2]
    assert "gcs_healthz" not in command
    assert _ray(_worker())["livenessProbe"]["timeoutSeconds"] == 2


def test_probe_ports_follow_the_parameters_where_these_are_numbers():
    params = {"dashboard-agent-listen-port": "7777", "dashboard-port": "some"}
    head = _from({}) | {"rayStartParams": params}
    command = _ray(_head(headGroupSpec=head))["livenessProbe"]["exec"]["command"][2]
    assert "localhost:7777/api/local_raylet_healthz" in command
    assert "localhost:8265/api/gcs_healthz" in command


def test_only_the_missing_probe_is_added():
    given = {"exec": {"command": ["true"]}}
    container = _ray(_head(headGroupSpec=_from({"livenessProbe": given})))
    assert container["livenessProbe"] == given
    assert container["readinessProbe"]["failureThreshold"] == 10
    assert "readinessProbe" not in _ray(_head(policy=Policy(inject_probes=False)))


def test_workers_of_a_service_are_ready_when_the_proxy_is():
    root = cluster(group(), rayVersion="2.53.0")
    root["metadata"]["labels"] = {"ray.io/originated-from-crd": "RayService"}
    worker = _worker(root=root)
    readiness = _ray(worker)["readinessProbe"]
    assert readiness["exec"]["command"][2].endswith("http://localhost:8000/-/healthz | grep success")
    assert readiness["failureThreshold"] == 1
    assert "httpGet" in _ray(worker)["livenessProbe"]
    assert worker["metadata"]["labels"]["ray.io/serve"] == "true"
    head = _head(root)
    assert head["metadata"]["labels"]["ray.io/serve"] == "false"
    assert _env(_ray(head))["RAY_SERVE_KV_TIMEOUT_S"] == "5"
    assert _env(_ray(head))["RAY_USAGE_STATS_EXTRA_TAGS"].endswith("kuberay_crd=RayService")


def test_variables_of_the_user_win_where_they_may():
    given = [{"name": "RAY_ADDRESS", "value": "mine"}, {"name": "RAY_PORT", "value": "1"}]
    container = _ray(_head(headGroupSpec=_from({"env": given})))
    assert _env(container)["RAY_ADDRESS"] == "mine"
    assert [entry["name"] for entry in container["env"]].count("RAY_PORT") == 1
    assert container["env"][:2] == given


def test_another_gcs_port_is_used_everywhere():
    root = cluster(group(), headGroupSpec=_from({}) | {"rayStartParams": {"port": "6380"}})
    worker = _worker(root=root)
    assert _env(_ray(worker))["RAY_ADDRESS"] == "demo-head-svc.ns1.svc.cluster.local:6380"
    assert "--address=demo-head-svc.ns1.svc.cluster.local:6380 " in _ray(worker)["args"][0]
    assert "demo-head-svc.ns1.svc.cluster.local:6380" in worker["spec"]["initContainers"][0]["args"][0]
    assert _env(_ray(_head(root)))["RAY_ADDRESS"] == "127.0.0.1:6380"


def test_shared_memory():
    requested = _from({"resources": {"requests": {"memory": "2Gi"}}})
    assert _head(headGroupSpec=requested)["spec"]["volumes"] == [
        {"name": "shared-mem", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}
    ]
    own = _from({"volumeMounts": [{"name": "own", "mountPath": "/dev/shm"}]}, volumes=[{"name": "own", "emptyDir": {}}])
    assert _head(headGroupSpec=own)["spec"]["volumes"] == [{"name": "own", "emptyDir": {}}]
    plasma = _from({}) | {"rayStartParams": {"plasma-directory": "/tmp"}}
    assert "volumes" not in _head(headGroupSpec=plasma)["spec"]


def test_the_wait_for_the_head_has_what_the_user_gave_and_can_be_left_out():
    given = {
        "env": [{"name": "A", "value": "1"}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "imagePullPolicy": "Always",
        "securityContext": {"runAsUser": 7},
    }
    (init,) = _worker(group() | _from(given))["spec"]["initContainers"]
    assert [entry["name"] for entry in init["env"]] == ["A", "FQ_RAY_IP", "RAY_IP"]
    assert init["volumeMounts"] == given["volumeMounts"]
    assert init["imagePullPolicy"] == "Always"
    assert init["securityContext"] == {"runAsUser": 7}
    assert "initContainers" not in _worker(policy=Policy(inject_init_container=False))["spec"]


@pytest.mark.parametrize(
    ("version", "value", "policy"), [("v2", "true", "Never"), ("v1", "false", None), (None, None, None)]
)
def test_autoscaler_versions(version, value, policy):
    options = {"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": version} if version else {}}
    head, worker = _head(**options), _worker(**options)
    assert _env(_ray(head)).get("RAY_enable_autoscaler_v2") == value
    assert head["spec"].get("restartPolicy") == policy
    assert worker["spec"].get("restartPolicy") == policy


def test_autoscaler_options():
    options = {
        "image": "a:1", "imagePullPolicy": "Always", "command": ["c"], "args": ["d"], "resources": {"limits": {"cpu": "2"}},
        "env": [{"name": "X", "value": "1"}], "envFrom": [{"secretRef": {"name": "s"}}],
        "volumeMounts": [{"name": "m", "mountPath": "/m"}], "securityContext": {"runAsUser": 1},
    }  # fmt: skip
    _, container = _head(enableInTreeAutoscaling=True, autoscalerOptions=options)["spec"]["containers"]
    for key in ("image", "imagePullPolicy", "command", "args", "resources", "envFrom", "securityContext"):
        assert container[key] == options[key]
    assert container["env"][-1] == {"name": "X", "value": "1"}
    assert [mount["name"] for mount in container["volumeMounts"]] == ["m", "ray-logs"]
    assert _env(container)["KUBERAY_GEN_AUTOSCALER_START_CMD"].startswith("ray kuberay-autoscaler ")


def test_kubernetes_tokens():
    auth = {"mode": "token", "enableK8sTokenAuth": True}
    worker = _worker(authOptions=auth, rayVersion="2.55.0")
    assert _env(_ray(worker))["RAY_ENABLE_K8S_TOKEN_AUTH"] == "true"
    assert "RAY_AUTH_TOKEN" not in _env(_ray(worker))
    assert [mount["name"] for mount in _ray(worker)["volumeMounts"]] == ["ray-token", "shared-mem"]
    assert [mount["name"] for mount in worker["spec"]["initContainers"][0]["volumeMounts"]] == ["ray-token"]
    assert [volume["name"] for volume in worker["spec"]["volumes"]] == ["ray-token", "shared-mem"]

    assert "automountServiceAccountToken" not in worker["spec"], "Ray itself asks the API server about tokens"


def _with(**given):
    return {"template": {"spec": {**TEMPLATE["spec"], **given}}}


@pytest.mark.parametrize("spec", [{}, {"authOptions": {"mode": "token"}, "rayVersion": "2.52.0"}])
def test_pods_get_no_token_of_the_api_server(spec):
    assert _head(**spec)["spec"]["automountServiceAccountToken"] is False
    assert _worker(**spec)["spec"]["automountServiceAccountToken"] is False


def test_a_head_with_an_autoscaler_gets_one_and_its_workers_do_not():
    assert "automountServiceAccountToken" not in _head(enableInTreeAutoscaling=True)["spec"]
    assert _worker(enableInTreeAutoscaling=True)["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    "given", [{"serviceAccountName": "mine"}, {"serviceAccount": "mine"}, {"automountServiceAccountToken": True}]
)
def test_a_template_that_names_an_account_or_asks_for_a_token_is_left_alone(given):
    asked = given.get("automountServiceAccountToken")
    assert _head(headGroupSpec=_with(**given))["spec"].get("automountServiceAccountToken") is asked
    assert _worker(group(**_with(**given)))["spec"].get("automountServiceAccountToken") is asked


def test_a_secret_of_the_users_own():
    auth = {"mode": "token", "secretName": "own"}
    entry = next(e for e in _ray(_head(authOptions=auth))["env"] if e["name"] == "RAY_AUTH_TOKEN")
    assert entry["valueFrom"]["secretKeyRef"] == {"name": "own", "key": "auth_token"}


def test_login_shell_and_cluster_domain():
    worker = _worker(policy=Policy(login_shell=True, cluster_domain="corp"))
    assert _ray(worker)["command"] == ["/bin/bash", "-cl", "--"]
    assert _env(_ray(worker))["FQ_RAY_IP"] == "demo-head-svc.ns1.svc.corp"


def test_the_users_object_is_never_modified():
    root = cluster(group(template=copy.deepcopy(TEMPLATE)), enableInTreeAutoscaling=True)
    before = copy.deepcopy(root)
    Kubernetes(root).settle()
    assert root["spec"] == before["spec"]


def test_pods_of_a_group_are_built_once_and_anew_after_a_change():
    world = Kubernetes(cluster(group(replicas=3)))
    first, second, third = [a.body for a in actions(world.decide(), CreatePod)[1:]]
    assert first["spec"] is second["spec"] is third["spec"]
    assert first["metadata"]["name"] != second["metadata"]["name"]
    world.annotate(**{"ray.io/overwrite-container-cmd": "true"})
    changed = actions(world.decide(), CreatePod)[1].body
    assert "command" not in changed["spec"]["containers"][0]
    world.spec(workerGroupSpecs=[group(replicas=1, rayStartParams={"x": "y"})])
    assert "--x=y" in actions(world.decide(), CreatePod)[1].body["spec"]["containers"][0]["env"][6]["value"]

"""kubectl and the Python client at work with ray.io kinds and what they own."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client, config, watch

from support.server_process import ServerProcess

CLUSTER: dict[str, Any] = {
    "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c"},
    "spec": {
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "head", "image": "example/ray:1"}]}}},
        "workerGroupSpecs": [{
            "groupName": "w", "replicas": 1, "minReplicas": 0, "maxReplicas": 5, "rayStartParams": {},
            "template": {"spec": {"containers": [{"name": "worker", "image": "example/ray:1"}]}},
        }],
    },
}  # fmt: skip


@pytest.fixture
def named(shared_server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of this test alone."""
    name = request.node.name.replace("_", "-").replace("[", "-").replace("]", "")[:50].rstrip("-")
    shared_server.kubectl("create", "namespace", name)
    yield name
    shared_server.kubectl("delete", "namespace", name, "--wait=false")


def test_apply_again_changes_only_what_differs(shared_server: ServerProcess, named: str) -> None:
    text = yaml.safe_dump(CLUSTER)
    versions = []
    for given in (text, text, text.replace("maxReplicas: 5", "maxReplicas: 6")):
        shared_server.kubectl("-n", named, "apply", "-f", "-", stdin=given)
        found = json.loads(shared_server.kubectl("-n", named, "get", "raycluster", "c", "-o", "json").stdout)
        versions.append(found["metadata"]["resourceVersion"])
    assert versions[0] == versions[1] != versions[2]
    assert found["spec"]["workerGroupSpecs"][0]["maxReplicas"] == 6
    assert found["metadata"]["generation"] == 2


def test_a_typo_in_a_pod_template_is_refused_and_named(shared_server: ServerProcess, named: str) -> None:
    text = yaml.safe_dump(CLUSTER).replace("image: example/ray:1", "imagee: example/ray:1", 1)
    done = shared_server.kubectl("-n", named, "apply", "-f", "-", stdin=text, check=False)
    assert done.returncode != 0
    assert 'unknown field "spec.headGroupSpec.template.spec.containers[0].imagee"' in done.stderr


def test_columns_and_wait(shared_server: ServerProcess, named: str) -> None:
    shared_server.kubectl("-n", named, "apply", "-f", "-", stdin=yaml.safe_dump(CLUSTER))
    shown = shared_server.kubectl("-n", named, "get", "raycluster").stdout.splitlines()
    assert shown[0].split()[:3] == ["NAME", "DESIRED", "WORKERS"]
    patch = json.dumps({"status": {"state": "ready"}})

    def later() -> None:
        time.sleep(0.5)
        words = ("-n", named, "patch", "raycluster", "c", "--subresource=status", "--type=merge", "-p", patch)
        shared_server.kubectl(*words)

    thread = threading.Thread(target=later)
    thread.start()
    shared_server.kubectl("-n", named, "wait", "raycluster/c", "--for=jsonpath={.status.state}=ready", "--timeout=20s")
    thread.join()


def test_the_everyday_commands(shared_server: ServerProcess, named: str) -> None:
    def kubectl(*words: str, stdin: str = "") -> str:
        return shared_server.kubectl("-n", named, *words, stdin=stdin).stdout

    kubectl("create", "-f", "-", stdin=yaml.safe_dump(CLUSTER))
    kubectl("label", "raycluster", "c", "team=a")
    kubectl("annotate", "raycluster", "c", "note=b")
    assert kubectl("get", "raycluster", "-l", "team=a", "-o", "name") == "raycluster.ray.io/c\n"
    kubectl("patch", "raycluster", "c", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    kubectl("run", "p", "--image=example/app:1")
    kubectl("set", "image", "pod/p", "p=example/app:2")
    assert "example/app:2" in kubectl("describe", "pod", "p")
    described = kubectl("describe", "raycluster", "c")
    assert "Suspend:" in described
    kubectl("create", "configmap", "m", "--from-literal=k=v")
    kubectl("create", "secret", "generic", "s", "--from-literal=k=v")
    kubectl("create", "job", "j", "--image=example/app:1", "--", "true")
    assert "job.batch/j" in kubectl("get", "all", "-o", "name")
    kubectl("delete", "raycluster", "c")
    kubectl("delete", "pod", "p")
    kubectl("delete", "job", "j")
    assert kubectl("get", "raycluster,pods,jobs", "-o", "name") == ""


def test_get_watch_shows_changes(shared_server: ServerProcess, named: str) -> None:
    api = client.CoreV1Api(config.new_client_from_config(str(shared_server.kubeconfig)))
    api.create_namespaced_config_map(named, {"metadata": {"name": "a"}})
    seen = []
    follow = watch.Watch()
    for event in follow.stream(
        api.list_namespaced_config_map, named, field_selector="metadata.name=a", timeout_seconds=10
    ):
        seen.append(event["type"])
        if event["type"] == "ADDED":
            api.patch_namespaced_config_map("a", named, {"data": {"k": "v"}})
        elif event["type"] == "MODIFIED":
            api.delete_namespaced_config_map("a", named)
        else:
            follow.stop()
    assert seen == ["ADDED", "MODIFIED", "DELETED"]


def test_the_python_client_makes_and_deletes_typed_and_custom_objects(shared_server: ServerProcess, named: str) -> None:
    connection = config.new_client_from_config(str(shared_server.kubeconfig))
    core, custom, batch = (
        client.CoreV1Api(connection),
        client.CustomObjectsApi(connection),
        client.BatchV1Api(connection),
    )
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "example/app:1"}]}}
    made = core.create_namespaced_pod(named, pod)
    assert made.metadata.name == "p"
    assert core.delete_namespaced_pod("p", named).metadata.name == "p"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example/app:1"}]}}
    assert (
        batch.create_namespaced_job(
            named, {"metadata": {"name": "j"}, "spec": {"template": template}}
        ).spec.backoff_limit
        == 6
    )
    where = ("ray.io", "v1", named, "rayclusters")
    assert custom.create_namespaced_custom_object(*where, CLUSTER)["metadata"]["generation"] == 1
    assert [c["metadata"]["name"] for c in custom.list_namespaced_custom_object(*where)["items"]] == ["c"]
    with pytest.raises(client.exceptions.ApiException) as caught:
        custom.create_namespaced_custom_object(*where, CLUSTER)
    assert caught.value.status == 409
    custom.delete_namespaced_custom_object(*where, "c")


def test_logs_of_a_pod_whose_kubelet_is_away_say_so(shared_server: ServerProcess, named: str) -> None:
    core = client.CoreV1Api(config.new_client_from_config(str(shared_server.kubeconfig)))
    node = {"metadata": {"name": named}, "status": {}}
    core.create_node(node)
    core.patch_node_status(named, {
        "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}},
    })  # fmt: skip
    core.create_namespaced_pod(named, {
        "metadata": {"name": "p"}, "spec": {"nodeName": named, "containers": [{"name": "c", "image": "example/app:1"}]},
    })  # fmt: skip
    done = shared_server.kubectl("-n", named, "logs", "p", check=False)
    assert f"the kubelet of node {named} does not answer" in done.stderr
    core.delete_namespaced_pod("p", named, grace_period_seconds=0)
    core.delete_node(named)

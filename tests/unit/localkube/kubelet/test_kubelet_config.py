"""Environment, command, volumes, sizes: what of a Pod becomes what the node is told."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybus_localkube.kubelet import environment, launching, podspec, scheduling, sizing, volumes
from raybus_localkube.kubelet.environment import ConfigError, Facts, Sources
from raybus_localkube.kubelet.launching import Place
from raybus_localkube.kubelet.resources import Machine
from raybus_localkube.kubelet.volumes import File, TokenRequest

GIB = 1 << 30
FACTS = Facts("10.244.0.9", "127.0.0.1", "local", Machine(4, 16 * GIB))
PLACE = Place("/env", has_ray=True)
META = {
    "name": "p", "namespace": "ns", "uid": "u1", "labels": {"b": 'x"y', "a": "1"}, "annotations": {"k": "v"},
}  # fmt: skip


def pod(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": META, "spec": {"containers": [{"name": "main", **container}], **spec}}


def env_of(container: dict[str, Any], sources: Sources | None = None) -> dict[str, str]:
    obj = pod(container)
    return environment.environment(
        obj, obj["spec"]["containers"][0], FACTS, sources or Sources(), {"GIVEN": "g"}, {"DEF": "d"}
    )


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(B)", "$(B)"),
        ("$A ${A}", "$A ${A}"),
        ("$(A", "$(A"),
        ("a$$", "a$"),
    ],
)
def test_expansion(text: str, result: str) -> None:
    assert environment.expand(text, {"A": "1"}) == result


@given(st.text(alphabet="ab {}'\"\\\n"))
def test_what_has_no_dollar_stays_byte_for_byte(text: str) -> None:
    assert environment.expand(text, {"a": "1"}) == text


def test_order_and_precedence() -> None:
    result = env_of(
        {
            "env": [
                {"name": "A", "value": "$(B)-$(GIVEN)"},
                {"name": "B", "value": "2"},
                {"name": "C", "value": "$(B)"},
                {"name": "DEF", "value": "mine"},
            ]
        }
    )
    assert result == {"GIVEN": "g", "A": "$(B)-g", "B": "2", "C": "2", "DEF": "mine"}
    assert env_of({})["DEF"] == "d"


def test_sources_of_the_environment() -> None:
    sources = Sources({("ConfigMap", "cm"): {"x": b"1", "not a name": b"2"}, ("Secret", "s"): {"k": b"secret"}})
    container = {
        "envFrom": [{"configMapRef": {"name": "cm"}, "prefix": "P_"}, {"secretRef": {"name": "no", "optional": True}}],
        "env": [
            {"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "GONE", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "y", "optional": True}}},
        ],
    }
    assert env_of(container, sources) == {"GIVEN": "g", "DEF": "d", "P_x": "1", "K": "secret"}
    assert set(environment.references(container)) == {("ConfigMap", "cm"), ("Secret", "no"), ("Secret", "s")}


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ({"configMapKeyRef": {"name": "no", "key": "k"}}, 'configmap "no" not found'),
        ({"secretKeyRef": {"name": "s", "key": "no"}}, "couldn't find key no in Secret ns/s"),
        ({"fieldRef": {"fieldPath": "spec.nope"}}, "fieldPath spec.nope is not supported"),
        ({"resourceFieldRef": {"resource": "limits.cpu", "containerName": "other"}}, 'no container "other"'),
    ],
)
def test_what_is_missing_is_named(origin: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        env_of({"env": [{"name": "X", "valueFrom": origin}]}, Sources({("Secret", "s"): {"k": b""}}))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"), ("metadata.namespace", "ns"), ("metadata.uid", "u1"), ("metadata.labels['a']", "1"),
        ("metadata.annotations['none']", ""), ("metadata.labels", 'a="1"\nb="x\\"y"'), ("status.podIP", "10.244.0.9"),
        ("status.hostIP", "127.0.0.1"), ("spec.nodeName", "local"),
    ],
)  # fmt: skip
def test_fields(path: str, value: str) -> None:
    assert environment.field_value(pod({}), path, FACTS) == value


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.cpu", None, "2"),
        ("limits.cpu", "1m", "1500"),
        ("requests.cpu", None, "2"),
        ("limits.memory", "1Mi", str(16 * 1024)),
        ("requests.memory", None, "0"),
    ],
)
def test_resource_fields(resource: str, divisor: str | None, value: str) -> None:
    container = {"name": "main", "resources": {"limits": {"cpu": "1500m"}}}
    origin = {"resource": resource, "divisor": divisor}
    assert environment.resource_value(pod({}), container, origin, FACTS) == value


def test_a_container_without_command_is_refused() -> None:
    with pytest.raises(ConfigError, match="do not use images"):
        environment.command({"name": "main", "args": ["x"]}, {})


def launch(container: dict[str, Any], place: Place = PLACE, **more: Any) -> Any:
    obj = pod({"command": ["true"], **container}, **more)
    return launching.spec(obj, obj["spec"]["containers"][0], 0, FACTS, Sources(), place, "/vol", "/log")


def test_what_every_pod_gets() -> None:
    env = launch({})["env"]
    assert env["PATH"].startswith("/opt/raybus/bin:/env/bin:")
    assert (env["HOME"], env["HOSTNAME"], env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]) == (
        "/home/ray",
        "p",
        "10.96.0.1",
        "443",
    )
    assert env["RAY_USAGE_STATS_ENABLED"] == "0"
    assert env["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] == "3"
    assert launch({}, terminationGracePeriodSeconds=6)["env"]["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] == "1"
    assert launch({"env": [{"name": "RAY_USAGE_STATS_ENABLED", "value": "1"}]})["env"]["RAY_USAGE_STATS_ENABLED"] == "1"


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        (["bash", "-c", "ulimit -n 1; ray start --head"], True),
        (["ray", "status"], True),
        (["echo", "array"], False),
        (["bash", "-c", "x&&ray job"], True),
    ],
)
def test_a_command_that_needs_ray_where_there_is_none(command: list[str], needed: bool) -> None:
    bare = Place("/env", has_ray=False)
    if needed:
        with pytest.raises(ConfigError, match=r'pip install "raybus\[local\]"'):
            launch({"command": command}, bare)
    else:
        assert launch({"command": command}, bare)["argv"] == command


def test_names_in_the_pod() -> None:
    request = launching.pod_request(pod({}, hostAliases=[{"ip": "1.2.3.4", "hostnames": ["a"]}]), FACTS.machine, PLACE)
    assert request["search"] == ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local"]
    assert request["options"] == ["ndots:5"]
    assert request["host_aliases"] == [{"ip": "1.2.3.4", "names": ["a"]}]
    own = pod({}, dnsPolicy="None", dnsConfig={"searches": ["x"], "options": [{"name": "ndots", "value": "1"}]})
    assert launching.pod_request(own, FACTS.machine, PLACE)["search"] == ["x"]


# Sizes


@pytest.mark.parametrize(
    ("resources", "start", "cpu", "memory"),
    [
        ({"limits": {"cpu": "2", "memory": "4Gi"}}, "", 2, 4 * GIB),
        ({"requests": {"cpu": "500m", "memory": "1Gi"}}, "", 0.5, GIB),
        ({"limits": {"cpu": "1", "memory": "300Mi"}}, "", 1, 300 << 20),
        ({"limits": {"cpu": "200m"}}, "ray start --num-cpus=3 --block", 3, 4 * GIB),
        ({}, "", 2, 4 * GIB),
        ({"limits": {"memory": "64Gi"}}, "", 2, 16 * GIB),
    ],
)
def test_sizes(resources: dict[str, Any], start: str, cpu: float, memory: int) -> None:
    env = {"KUBERAY_GEN_RAY_START_CMD": start}
    assert sizing.size({"resources": resources}, env, FACTS.machine) == (cpu, memory)


# Volumes


def files_of(volume: dict[str, Any], sources: Sources | None = None, **tokens: str) -> dict[str, File]:
    given = {TokenRequest("", 3607): tokens.get("token", "")}
    return volumes.files(pod({}, volumes=[volume]), volume, FACTS, sources or Sources(), given)


def test_files_of_volumes() -> None:
    sources = Sources({("ConfigMap", "cm"): {"a": b"1", "b": b"2"}, ("Secret", "s"): {"k": b"v"}})
    assert files_of({"name": "v", "configMap": {"name": "cm"}}, sources) == {"a": File(b"1"), "b": File(b"2")}
    picked = {
        "name": "v",
        "configMap": {"name": "cm", "defaultMode": 0o400, "items": [{"key": "a", "path": "d/a", "mode": 0o600}]},
    }
    assert files_of(picked, sources) == {"d/a": File(b"1", 0o600)}
    assert files_of({"name": "v", "secret": {"secretName": "s", "defaultMode": 0o400}}, sources) == {
        "k": File(b"v", 0o400)
    }
    assert files_of({"name": "v", "secret": {"secretName": "no", "optional": True}}, sources) == {}
    down = {"name": "v", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}}
    assert files_of(down) == {"n": File(b"p")}


def test_the_service_account_volume() -> None:
    volume = {
        "name": "sa",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ]
        },
    }
    sources = Sources({("ConfigMap", "kube-root-ca.crt"): {"ca.crt": b"CA"}})
    found = files_of(volume, sources, token="T")
    assert {name: file.content for name, file in found.items()} == {"token": b"T", "ca.crt": b"CA", "namespace": b"ns"}
    obj = pod({}, volumes=[volume])
    assert list(volumes.token_requests(obj)) == [TokenRequest("", 3607)]
    assert list(volumes.references(obj)) == [("ConfigMap", "kube-root-ca.crt")]
    assert podspec.has_token(obj)


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x"])
def test_no_path_leaves_a_volume(path: str) -> None:
    volume = {"name": "v", "configMap": {"name": "cm", "items": [{"key": "a", "path": path}]}}
    with pytest.raises(ConfigError, match="must be relative"):
        files_of(volume, Sources({("ConfigMap", "cm"): {"a": b""}}))
    mount = {"name": "e", "mountPath": "/m", "subPath": path}
    with pytest.raises(ConfigError, match="must be relative"):
        volumes.mounts(
            pod({}, volumes=[{"name": "e", "emptyDir": {}}]), {"name": "main", "volumeMounts": [mount]}, "/vol", {}
        )


def test_mounts() -> None:
    obj = pod(
        {},
        volumes=[
            {"name": "e", "emptyDir": {}},
            {"name": "c", "configMap": {"name": "cm"}},
            {"name": "h", "hostPath": {"path": "/data"}},
        ],
    )
    wanted = [
        {"name": "e", "mountPath": "/e", "subPathExpr": "$(N)/x"}, {"name": "c", "mountPath": "/c"},
        {"name": "h", "mountPath": "/h", "readOnly": True},
    ]  # fmt: skip
    assert volumes.mounts(obj, {"name": "main", "volumeMounts": wanted}, "/vol", {"N": "n"}) == [
        {"source": "/vol/e/n/x", "target": "/e", "read_only": False},
        {"source": "/vol/c", "target": "/c", "read_only": True},
        {"source": "/data", "target": "/h", "read_only": True},
    ]
    with pytest.raises(ConfigError, match="names no volume"):
        volumes.mounts(obj, {"name": "main", "volumeMounts": [{"name": "no", "mountPath": "/n"}]}, "/vol", {})


def test_memory_volumes_have_a_size() -> None:
    obj = pod(
        {},
        volumes=[
            {"name": "a", "emptyDir": {"medium": "Memory"}},
            {"name": "b", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            {"name": "c", "emptyDir": {}},
        ],
    )
    assert [(v.name, v.size) for v in volumes.memory_volumes(obj, 5)] == [("a", 5), ("b", GIB)]


def test_decoding_of_sources() -> None:
    secret = {"kind": "Secret", "data": {"k": base64.b64encode(b"\xff").decode()}}
    assert environment.decode_source(secret) == {"k": b"\xff"}
    assert environment.decode_source({"kind": "ConfigMap", "data": {"a": "ä"}, "binaryData": {"b": "AA=="}}) == {
        "a": "ä".encode(),
        "b": b"\0",
    }


# The pod as a whole


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"hostNetwork": True}, "spec.hostNetwork"),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            "spec.volumes[0].persistentVolumeClaim",
        ),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {}}]}}]},
            "spec.volumes[0].projected.sources[0].clusterTrustBundle",
        ),
        (
            {"initContainers": [{"name": "s", "restartPolicy": "Always"}]},
            "spec.initContainers[0].restartPolicy Always (a sidecar)",
        ),
        (
            {"containers": [{"name": "c", "livenessProbe": {"grpc": {"port": 1}}}]},
            "spec.containers[0].livenessProbe.grpc",
        ),
        ({"containers": [{"name": "c", "lifecycle": {"preStop": {"tcpSocket": {"port": 1}}}}]}, None),
    ],
)
def test_what_is_unsupported_is_named(spec: dict[str, Any], named: str | None) -> None:
    found = podspec.unsupported({"metadata": META, "spec": {"containers": [], **spec}})
    assert found == ([named] if named else [])


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
    ],
)
def test_quality_class(resources: dict[str, Any], quality: str) -> None:
    assert podspec.qos_class(pod({"resources": resources})) == quality


def asks(**requests: str) -> dict[str, Any]:
    return pod({"resources": {"requests": requests}})


def test_what_may_run_here() -> None:
    machine = Machine(2, 8 * GIB)
    assert scheduling.refusal(asks(cpu="64"), [], machine, {}) == ""
    assert "nvidia.com/gpu" in scheduling.refusal(asks(**{"nvidia.com/gpu": "1"}), [], machine, {})
    assert scheduling.refusal(asks(memory="5Gi"), [asks(memory="3Gi")], machine, {}) == ""
    assert "5120Mi requested, 4096Mi of 8192Mi left" in scheduling.refusal(
        asks(memory="5Gi"), [asks(memory="4Gi")], machine, {}
    )
    selected = pod({}, nodeSelector={"zone": "a"})
    assert "zone=a" in scheduling.refusal(selected, [], machine, {})
    assert scheduling.refusal(selected, [], machine, {"zone": "a"}) == ""


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, True),
        ({"nodeName": "x"}, False),
        ({"schedulingGates": [{"name": "kueue"}]}, False),
        ({"schedulerName": "volcano"}, False),
    ],
)
def test_which_pods_wait_for_this_scheduler(spec: dict[str, Any], wanted: bool) -> None:
    assert scheduling.wants_node(pod({}, **spec)) is wanted

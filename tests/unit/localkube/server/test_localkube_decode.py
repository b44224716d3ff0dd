"""Reading built-in objects, and bodies in protobuf."""

from __future__ import annotations

import orjson
import pytest

from raybus_localkube.kinds.decode import DecodeError, Decoder, with_duplicates
from raybus_localkube.server import protobuf
from raybus_localkube.server.errors import ApiError


def decode(obj: object, schema: str) -> tuple[dict[str, object], list[str]]:
    decoder = Decoder()
    return decoder.decode(obj, schema), decoder.strict


def test_what_go_leaves_out_is_left_out_and_what_it_prints_is_there() -> None:
    pod = {
        "metadata": {"name": "p", "labels": {}, "annotations": None},
        "spec": {"containers": [{"name": "c", "image": "", "args": [], "env": [{"name": "E", "value": ""}]}], "hostNetwork": False,
                 "volumes": [{"name": "v", "emptyDir": {}}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip
    found, problems = decode(pod, "Pod")
    assert problems == []
    assert found["metadata"] == {"name": "p"}
    assert found["spec"] == {
        "containers": [{"name": "c", "resources": {}, "env": [{"name": "E"}]}], "volumes": [{"name": "v", "emptyDir": {}}],
    }  # fmt: skip
    condition = {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
    assert found["status"] == {"conditions": [condition]}


def test_numbers_quantities_and_times_are_canonical() -> None:
    found, _ = decode(
        {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}]}}, "Pod"
    )
    assert found["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "500m", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("obj", "schema", "message"),
    [
        ({"metadata": {"name": 5}}, "ConfigMap", "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string"),
        ({"data": {"n": 5}}, "ConfigMap", "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        ({"data": []}, "ConfigMap", "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string"),
        ({"spec": {"containers": {}}}, "Pod", "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container"),
        ({"spec": {"activeDeadlineSeconds": 1.5}}, "Pod", "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.activeDeadlineSeconds of type int64"),
        ("x", "ConfigMap", "json: cannot unmarshal string into Go value of type v1.ConfigMap"),
        ({"binaryData": {"x": "not base64!"}}, "ConfigMap", "illegal base64 data at input byte 3"),
    ],
)  # fmt: skip
def test_wrong_types_are_told_as_go_does(obj: object, schema: str, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(obj, schema)
    assert str(caught.value) == message


def test_unknown_and_duplicate_fields_are_found() -> None:
    raw = b'{"metadata":{"name":"a","bogus":1,"labels":{"a":"1","a":"2"}},"data":{"k":"v"},"top":{}}'
    found, problems = decode(with_duplicates(raw, orjson.loads(raw)), "ConfigMap")
    expected = ['unknown field "metadata.bogus"', 'duplicate field "metadata.labels.a"', 'unknown field "top"']
    assert problems == expected
    assert found == {"metadata": {"name": "a", "labels": {"a": "2"}}, "data": {"k": "v"}}


def test_the_slow_parser_is_spared_where_no_key_can_be_twice() -> None:
    raw = b'{"a": {"b": 1}, "c": [{"d": "x"}]}'
    parsed = orjson.loads(raw)
    assert with_duplicates(raw, parsed) is parsed


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def unknown(api_version: str, kind: str, body: bytes) -> bytes:
    meta = field(1, api_version.encode()) + field(2, kind.encode())
    return protobuf.MAGIC + field(1, meta) + field(2, body)


def test_protobuf_bodies_of_kubectl_create() -> None:
    pair = field(1, b"k") + field(2, b"v")
    raw = unknown("v1", "ConfigMap", field(1, field(1, b"cm") + field(3, b"ns")) + field(2, pair))
    assert protobuf.decode(raw, "ConfigMap") == {
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "cm", "namespace": "ns"}, "data": {"k": "v"},
    }  # fmt: skip
    secret = unknown("v1", "Secret", field(1, field(1, b"s")) + field(2, field(1, b"k") + field(2, b"\xff")))
    assert protobuf.decode(secret, "Secret")["data"] == {"k": "/w=="}


def test_negative_numbers_and_ports_by_name() -> None:
    options = unknown("v1", "DeleteOptions", bytes([1 << 3]) + b"\xff" * 9 + b"\x01")
    assert protobuf.decode(options, "DeleteOptions")["gracePeriodSeconds"] == -1
    target = field(4, bytes([1 << 3, 1]) + field(3, b"http"))
    service = unknown("v1", "Service", field(2, field(1, target)))
    assert protobuf.decode(service, "Service")["spec"] == {"ports": [{"targetPort": "http"}]}


def test_protobuf_of_other_kinds_is_refused_with_a_way_out() -> None:
    with pytest.raises(ApiError) as caught:
        protobuf.decode(unknown("autoscaling/v2", "HorizontalPodAutoscaler", b""), "X")
    assert caught.value.code == 415
    assert "kubectl apply -f -" in caught.value.message


@pytest.mark.parametrize("raw", [b"nonsense", protobuf.MAGIC + b"\x0a\x7f", protobuf.MAGIC + b"\xff" * 20])
def test_broken_protobuf_is_400(raw: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        protobuf.decode(raw, "ConfigMap")
    assert caught.value.code == 400

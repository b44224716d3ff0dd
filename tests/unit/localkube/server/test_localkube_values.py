"""Quantities, times, ages, JSONPath, routing, negotiation: small pure readings."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybus_localkube.kinds import jsonpath, scalars
from raybus_localkube.kinds.ages import age, human
from raybus_localkube.kinds.registry import preference
from raybus_localkube.server import negotiation, routing
from raybus_localkube.server.errors import ApiError


@pytest.mark.parametrize(
    ("given_", "canonical"),
    [("1", "1"), (1, "1"), (0.5, "500m"), ("1000m", "1"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("0", "0"), ("1e3", "1k"),
     ("100M", "100M"), ("0.1Gi", "107374182400m"), ("12345", "12345"), ("2000", "2k"), ("-1", "-1")],
)  # fmt: skip
def test_quantities_are_canonical(given_: object, canonical: str) -> None:
    assert scalars.quantity(given_) == canonical


@given(st.integers(0, 10**12), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi"]))
def test_canonical_quantities_keep_their_value(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    assert scalars.quantity_value(scalars.quantity(text)) == scalars.quantity_value(text)
    assert scalars.quantity(scalars.quantity(text)) == scalars.quantity(text)


def test_no_quantity() -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        scalars.quantity("1 GB")
    assert scalars.quantity_value("250m") == Decimal("0.25")


def test_times() -> None:
    assert scalars.time("2024-01-01T01:00:00+01:00") == "2024-01-01T00:00:00Z"
    assert scalars.micro_time("2024-01-01T00:00:00.123456Z") == "2024-01-01T00:00:00.123456Z"
    for bad in ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00.5Z", "soon"):
        with pytest.raises(ValueError, match="cannot parse"):
            scalars.micro_time(bad)


def test_base64() -> None:
    assert scalars.base64_bytes("AAEC") == b"\0\1\2"
    assert scalars.base64_bytes("") == b""
    for bad, byte in (("not base64!", 3), ("AAE", 0)):
        with pytest.raises(ValueError, match=f"illegal base64 data at input byte {byte}"):
            scalars.base64_bytes(bad)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "<invalid>"), (0, "0s"), (119, "119s"), (120, "2m"), (192, "3m12s"), (3600, "60m"), (4 * 3600, "4h"),
     (4 * 3600 + 120, "4h2m"), (25 * 3600, "25h"), (49 * 3600, "2d1h"), (9 * 86400, "9d"), (800 * 86400, "2y70d")],
)  # fmt: skip
def test_ages_are_printed_as_by_the_server(seconds: int, text: str) -> None:
    assert human(seconds) == text


def test_an_age_without_a_time_is_unknown() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert age(None, now) == "<unknown>"
    assert age("2029-12-31T23:59:00Z", now) == "60s"


OBJ = {"spec": {"n": 1, "a.b": 2}, "list": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "False"}]}


@pytest.mark.parametrize(
    ("path", "found"),
    [(".spec.n", [1]), ("{.spec.n}", [1]), ("spec.n", [1]), (".list[1].type", ["X"]), (".list[*].type", ["Ready", "X"]),
     ('.list[?(@.type=="Ready")].status', ["True"]), (".list[?(@.type=='Z')].status", []), (".none.deep", []),
     (r".spec.a\.b", [2]), (".spec['a.b']", [2]), (".list[7]", [])],
)  # fmt: skip
def test_json_paths(path: str, found: list[object]) -> None:
    assert jsonpath.find(OBJ, path) == found


def test_a_json_path_that_is_none() -> None:
    with pytest.raises(ValueError, match="unsupported JSONPath"):
        jsonpath.find(OBJ, ".a[?(@.b>1)]")


def test_versions_are_ordered_by_preference() -> None:
    names = ["v1alpha1", "v1", "v2beta1", "v10", "foo", "v2"]
    assert sorted(names, key=preference) == ["v10", "v2", "v1", "v2beta1", "v1alpha1", "foo"]


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1", routing.Target("", "v1")),
        ("/api/v1/namespaces", routing.Target("", "v1", "namespaces")),
        ("/api/v1/namespaces/a", routing.Target("", "v1", "namespaces", None, "a")),
        ("/api/v1/namespaces/a/", routing.Target("", "v1", "namespaces", None, "a")),
        ("/api/v1/namespaces/a/status", routing.Target("", "v1", "namespaces", None, "a", "status")),
        ("/api/v1/namespaces/a/pods", routing.Target("", "v1", "pods", "a")),
        ("/api/v1/namespaces/a/pods/p/log", routing.Target("", "v1", "pods", "a", "p", "log")),
        ("/api/v1/watch/namespaces/a/pods", routing.Target("", "v1", "pods", "a", watch=True)),
        ("/apis/ray.io/v1/rayjobs", routing.Target("ray.io", "v1", "rayjobs")),
        ("/apis/ray.io", None),
        ("/healthz", None),
    ],
)
def test_paths(path: str, target: routing.Target | None) -> None:
    assert routing.parse(path) == target


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def test_negotiation_takes_the_first_clause_that_can_be_served() -> None:
    assert negotiation.negotiate(f"application/vnd.kubernetes.protobuf,{TABLE},application/json").form == "table"
    assert negotiation.negotiate("application/json;as=Table;v=v9;g=meta.k8s.io,application/json").form == "object"
    assert negotiation.negotiate("application/yaml").yaml
    assert negotiation.negotiate("").form == "object"
    for refused in ("text/html", "application/json;as=Table;v=v9;g=meta.k8s.io"):
        with pytest.raises(ApiError) as caught:
            negotiation.negotiate(refused)
        assert caught.value.code == 406
    with pytest.raises(ApiError):
        negotiation.negotiate("application/yaml", watch=True)

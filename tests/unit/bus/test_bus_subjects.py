from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybus.bus import subjects
from raybus.decide.tree import RootKey
from raybus.domain.identity import partition

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)


@given(namespace=NAMES, root=NAMES, name=NAMES, generation=st.integers(1, 99), part=st.integers(0, 127))
def test_an_object_subject_reads_back(namespace: str, root: str, name: str, generation: int, part: int) -> None:
    key = RootKey("RayCluster", namespace, root)
    subject = subjects.object_subject("raycluster", generation, part, key, "Pod", name)
    assert subjects.parse_object(subject) == ("raycluster", generation, part, key, "Pod", name)
    assert not subjects.is_marker(subject)


def test_the_subject_is_as_the_contract_says() -> None:
    key = RootKey("RayJob", "team-a", "train.v2")
    part = subjects.partition_of(key, 8)
    assert part == partition("team-a", "train.v2", 8)
    subject = subjects.object_subject("rayjob", 1, part, key, "Pod", "train.v2-abcde")
    assert subject == f"ray.rayjob.1.obj.{part}.team-a.RayJob.train_v2.Pod.train_v2-abcde"


def test_partitions_are_those_of_the_servers_own_hash() -> None:
    # FNV-1a 32 of "a": the published test vector.
    assert partition("", "a", 2**32) == 0xE40C292C
    assert partition("fo", "obar", 2**32) == 0xBF9CF968


def test_an_object_without_namespace() -> None:
    key = RootKey("Thing", "", "x")
    assert subjects.parse_object(subjects.object_subject("rayjob", 1, 0, key, "Thing", "x")).key == key


def test_markers() -> None:
    subject = subjects.marker_subject("rayjob", 2, "Pod")
    assert subject == "ray.rayjob.2.mark.Pod"
    assert subjects.is_marker(subject)
    assert subjects.parse_marker(subject) == "Pod"


@given(namespace=NAMES, name=NAMES)
def test_history_subjects_read_back(namespace: str, name: str) -> None:
    subject = subjects.history_subject("gateway", namespace, "RayJob", name)
    assert subjects.parse_history(subject) == ("gateway", namespace, "RayJob", name)


@pytest.mark.parametrize(
    "parse",
    [subjects.parse_object, subjects.parse_marker, subjects.parse_history],
)
@pytest.mark.parametrize("subject", ["", "ray", "other.a.1.obj.0.ns.K.r.K.n", "ray.a.1.what.0.ns.K.r.K.n.more"])
def test_other_subjects_are_refused(parse: object, subject: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse(subject)


def test_filters() -> None:
    assert subjects.partition_filter("rayjob", 1, 3) == "ray.rayjob.1.obj.3.>"
    assert subjects.objects_filter("rayjob", 1) == "ray.rayjob.1.obj.>"
    assert subjects.markers_filter("rayjob", 1) == "ray.rayjob.1.mark.*"
    assert subjects.lease_subject("lease-rayjob", "part.3") == "$KV.lease-rayjob.part.3"

"""What `raybus run` makes of a file, good or bad."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybus.cli import manifest
from raybus.cli.errors import UserError

RAYJOB = """
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: count}
spec: {entrypoint: python count.py}
"""
CLUSTER = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: pool, namespace: team}
"""


def test_a_plain_rayjob_is_followed_in_the_default_namespace():
    found = manifest.parse(RAYJOB, "job.yaml")
    assert found.subject["metadata"] == {"name": "count", "namespace": "default"}
    assert found.objects == (found.subject,)


def test_the_given_namespace_fills_in_only_where_none_is_named():
    found = manifest.parse(RAYJOB + "---" + CLUSTER, "job.yaml", "mine")
    assert [obj["metadata"]["namespace"] for obj in found.objects] == ["mine", "team"]


def test_the_rayjob_is_followed_also_beside_a_cluster():
    assert manifest.parse(CLUSTER + "---" + RAYJOB + "---" + CLUSTER, "f").subject["kind"] == "RayJob"


def test_what_is_merged_may_be_overridden():
    head = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a}\n"
    text = head + "shared: {deep: &m {x: 1}}\nspec: {<<: *m, x: 2}\n"
    assert manifest.parse(text, "f").subject["spec"] == {"x": 2}


def test_a_list_is_taken_apart():
    text = "kind: List\napiVersion: v1\nitems:\n- {apiVersion: ray.io/v1, kind: RayJob, metadata: {name: a}}\n"
    assert manifest.parse(text, "f").subject["metadata"]["name"] == "a"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no Ray object (found: nothing)"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "found: ConfigMap"),
        ("- 1\n", "document 1 is not an object but list"),
        ("kind: RayJob\nmetadata: {name: a}\n", "has no apiVersion"),
        ("apiVersion: ray.io/v1\nkind: RayJob\n", "has no metadata.name"),
        ("apiVersion: ray.io/v1\nkind: RayJobb\nmetadata: {name: a}\n", "kind RayJobb is not part of ray.io"),
        ("a: [1\nb: 2\n", "line 2"),
        ("apiVersion: ray.io/v2\nkind: RayJob\nmetadata: {name: a}\n", "apiVersion ray.io/v2 is unknown"),
        ("apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: 12}\n", "metadata.name is 12, not text"),
        ("apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a}\nspec: {x: 1,\n  x: 2}\n", "line 5, column 3"),
    ],
)
def test_what_is_wrong_is_named_with_a_remedy(text, words):
    with pytest.raises(UserError) as caught:
        manifest.parse(text, "job.yaml")
    assert words in caught.value.message
    assert "job.yaml" in caught.value.message
    assert caught.value.hint


def test_a_missing_file_a_folder_and_bytes_are_named(tmp_path: Path):
    for path, words in (
        (tmp_path / "no.yaml", "no such file"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(UserError, match=words):
            manifest.load(path)
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        manifest.load(binary)


def test_a_kind_that_raybus_does_not_know_says_how_to_apply_it():
    obj = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}
    with pytest.raises(UserError) as caught:
        manifest.kind_of(obj)
    assert "kubectl" in caught.value.hint


def test_the_kind_keeps_the_version_of_the_file():
    assert manifest.kind_of({"apiVersion": "ray.io/v1alpha1", "kind": "RayJob", "metadata": {}}).version == "v1alpha1"

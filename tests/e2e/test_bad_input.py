"""What a user gets for a mistake: `raybus run FILE` ends with a code and one message that names the field and the remedy."""

from __future__ import annotations

import copy
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.local import EXAMPLE, Local

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

REFUSED_S = 30.0
GROUP = "spec.rayClusterSpec.workerGroupSpecs[0]"
CONTAINER = "spec.rayClusterSpec.headGroupSpec.template.spec.containers[0]"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    found = Local(tmp_path_factory.mktemp("rb"))
    found.up()
    yield found
    found.down()


def told(local: Local, path: Path, *words: str) -> str:
    """The one error of a run that must fail."""
    done = local.raybus("run", str(path), *words, timeout=REFUSED_S)
    assert done.returncode not in (0, None), done.stdout
    assert "Traceback" not in done.stderr
    assert "warning" not in done.stderr, "it is told once, as an error"
    assert sum(line.startswith("error:") for line in done.stderr.splitlines()) == 1, done.stderr
    message, _, hint = done.stderr.partition("error: ")[2].partition("\n")
    assert hint.strip(), "no remedy is named"
    return f"{message}\n{hint}"


def changed(name: str, field: str, value: Any) -> str:
    """The example under another name with one field set, or taken away by None."""
    job, code = copy.deepcopy(list(yaml.safe_load_all(EXAMPLE.read_text())))
    job["metadata"]["name"] = name
    *way, last = [int(part) if part.isdigit() else part for part in field.replace("[", ".").replace("]", "").split(".")]
    place = job
    for part in way:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return yaml.safe_dump_all([job, code])


FIELDS = [
    ("unknown", "spec.entryPoint", "x", ["spec.entryPoint", "unknown field"]),
    ("unknown-deep", f"{CONTAINER}.imagee", "x", [f"{CONTAINER}.imagee", "unknown field"]),
    ("type", "spec.ttlSecondsAfterFinished", "soon", ["spec.ttlSecondsAfterFinished", "integer"]),
    ("type-deep", f"{GROUP}.replicas", "two", [f"{GROUP}.replicas", "integer"]),
    ("no-spec", "spec", None, ["spec.rayClusterSpec"]),
    ("no-head", "spec.rayClusterSpec.headGroupSpec", None, ["spec.rayClusterSpec.headGroupSpec", "Required"]),
    (
        "no-template",
        "spec.rayClusterSpec.headGroupSpec.template",
        None,
        ["spec.rayClusterSpec.headGroupSpec.template", "Required"],
    ),
    ("no-image", f"{CONTAINER}.image", None, ["spec.containers[0].image", "Required", "--replace"]),
    ("no-cluster", "spec.rayClusterSpec", None, ["spec.rayClusterSpec: missing"]),
    ("no-entrypoint", "spec.entrypoint", None, ["spec.entrypoint: missing", "such as"]),
    ("variables", "spec.runtimeEnvYAML", "env_vars: {PORT: 8080}", ["env_vars.PORT must be text", "quotes"]),
    ("ttl", "spec.ttlSecondsAfterFinished", -1, ["spec.ttlSecondsAfterFinished: -1 must not be negative"]),
    ("mode", "spec.submissionMode", "Magic", ["spec.submissionMode", "K8sJobMode"]),
    ("later", "spec.backoffLimit", 2, ["spec.backoffLimit: 2", "not supported yet", "leave it out"]),
    (
        "later-cluster",
        "spec.rayClusterSpec.gcsFaultToleranceOptions",
        {"redisAddress": "r:6379"},
        ["spec.gcsFaultToleranceOptions", "not supported yet", "--replace"],
    ),
    ("a" * 48, "metadata.labels", {}, ["metadata.name", "48 characters", "at most 47"]),
    ("Upper", "metadata.labels", {}, ["metadata.name", "lower case"]),
    ("nowhere", "metadata.namespace", "nowhere", ['"nowhere" not found', "create"]),
]


@pytest.mark.parametrize("row", FIELDS, ids=[row[0] for row in FIELDS])
def test_a_field_that_is_wrong_is_named(row: tuple[str, str, Any, list[str]], local: Local, tmp_path: Path):
    path = tmp_path / "job.yaml"
    path.write_text(changed(*row[:3]))
    found = told(local, path)
    for word in row[3]:
        assert word in found, found
    assert "<nil>" not in found


HEADER = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a}\n"
FILES: list[tuple[str, bytes | None, list[str]]] = [
    ("missing", None, ["no such file", "check the path"]),
    ("empty", b"", ["no Ray object", "kind: RayJob"]),
    ("no Ray object", b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", ["found: ConfigMap", "kind: RayJob"]),
    ("not text", b"\x7fELF\x80", ["not UTF-8"]),
    ("not YAML", b"a: [1\nb: 2\n", ["line 2", "not valid YAML"]),
    ("a key twice", f"{HEADER}spec: {{entrypoint: a, entrypoint: b}}\n".encode(), ["line 4", "'entrypoint'", "twice"]),
    ("another version", HEADER.replace("/v1", "/v2").encode(), ["ray.io/v2", "use ray.io/v1"]),
    ("a number as name", HEADER.replace("name: a", "name: 1").encode(), ["metadata.name", "quotes"]),
]


@pytest.mark.parametrize(("text", "words"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_a_file_that_is_wrong_is_named(text: bytes | None, words: list[str], local: Local, tmp_path: Path):
    path = tmp_path / "job.yaml"
    if text is not None:
        path.write_bytes(text)
    found = told(local, path)
    for word in (str(path), *words):
        assert word in found, found


def test_a_folder_is_no_file(local: Local, tmp_path: Path):
    assert "is a folder" in told(local, tmp_path)


def test_after_mending_the_same_command_is_enough(local: Local, tmp_path: Path):
    """What was turned away, by either kind of refusal, is replaced by what the file says now."""
    path = tmp_path / "job.yaml"
    for field, value in (("spec.backoffLimit", 2), ("spec.entrypoint", None), ("spec.submissionMode", "Magic")):
        path.write_text(changed("mended", field, value))
        assert field in told(local, path)


def test_a_mended_cluster_needs_to_be_asked_for(local: Local, tmp_path: Path):
    path = tmp_path / "job.yaml"
    path.write_text(changed("again", f"{CONTAINER}.image", None))
    assert "--replace" in told(local, path)
    path.write_text(changed("again", "spec.entrypoint", None))
    assert "spec.entrypoint" in told(local, path, "--replace")


def test_a_port_in_use_is_named(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = Local(tmp_path / "rb").raybus("up", "--port", port, timeout=REFUSED_S)
    assert done.returncode not in (0, None)
    assert "Traceback" not in done.stderr
    assert port in done.stderr
    assert "in use" in done.stderr


def test_an_unknown_command_or_option_is_told_with_the_usage(local: Local):
    for words in (("run",), ("run", "--no-such", "x"), ("rum",)):
        done = local.raybus(*words, timeout=REFUSED_S)
        assert done.returncode == 2
        assert "Usage" in done.stderr

"""What the image of all services holds and what it does not, asked of a container of it."""

from __future__ import annotations

import json
import re
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.containers import ROOT, Engine, Running

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]  # the first of them may have to build it

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMMANDS = sorted(name for name in PROJECT["scripts"] if name.startswith("raybus"))
LIMIT = 150_000_000
SBOM = "/usr/share/sbom/raybus.cdx.json"

DISTRIBUTIONS = """
import json, os
from importlib.metadata import Distribution
found = {}
for folder, folders, _ in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/proc", "/sys", "/dev")]
    for name in folders:
        if name.endswith((".dist-info", ".egg-info")):
            told = Distribution.at(os.path.join(folder, name)).metadata
            found[told["Name"]] = told["Version"]
print(json.dumps(found))
"""

TOOLS = """
import importlib.util, shutil
programs = "gcc cc g++ c++ clang ld make cmake rustc cargo go pip pip3 uv easy_install nats-server kubectl"
modules = "pip setuptools wheel ensurepip hatchling cyclonedx pytest ray"
print(*[name for name in programs.split() if shutil.which(name)], *[name for name in modules.split() if importlib.util.find_spec(name)])
"""

PRIVILEGED = """
import os, stat
for folder, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/proc", "/sys", "/dev")]
    for path in (os.path.join(folder, name) for name in files):
        if not os.path.islink(path) and os.lstat(path).st_mode & (stat.S_ISUID | stat.S_ISGID):
            print(path)
"""

UNCOMPILED = """
import importlib, os, sys
for name in ("raybus_gateway.__main__", "raybus_cluster_ctrl.__main__", "raybus_job_ctrl.__main__", "raybus.cli.main",
             "kubernetes.config.kube_config", "kubernetes.config.incluster_config"):
    importlib.import_module(name)
for name, module in sorted(sys.modules.items()):
    compiled = getattr(module, "__cached__", None)
    if compiled and not os.path.exists(compiled):
        print(name)
"""


def scripted(value: str) -> str:
    """A distribution's name, as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", value).lower()


@pytest.fixture(scope="module")
def resting(engine: Engine, image: str) -> Iterator[Running]:
    """A container that does nothing, on a read-only file system, as the image's own user and with no capability."""
    command = ["python", "-c", "import signal; signal.signal(signal.SIGTERM, lambda *_: exit()); signal.pause()"]
    with Running(engine, image, command, read_only=True, cap_drop=["ALL"]) as container:
        yield container


def output(container: Running, *command: str) -> str:
    code, said = container.run(*command)
    assert code == 0, said
    return said


def python(container: Running, program: str) -> str:
    return output(container, "python", "-c", program)


def test_it_is_small(engine: Engine, image: str) -> None:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)  # quick: registries store less than this
    size = sum(len(packer.compress(chunk)) for chunk in engine.client.images.get(image).save()) + len(packer.flush())

    assert size <= LIMIT, f"{size / 1e6:.1f} MB compressed"


def test_it_says_what_it_is(engine: Engine, image: str) -> None:
    config = engine.client.images.get(image).attrs["Config"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}

    assert labels["title"] == "raybus"
    assert labels["version"] == PROJECT["version"]
    assert labels["licenses"] == "Apache-2.0"
    assert re.fullmatch(r"[0-9a-f]{40}|unknown", labels["revision"])
    assert config["User"] == "65532:65532"
    assert not config.get("Entrypoint"), "the container's command chooses"


def test_it_runs_as_nobody_in_particular_and_can_write_nothing(resting: Running) -> None:
    assert python(resting, "import os; print(os.getuid(), os.getgid(), os.getgroups())").split()[:2] == [
        "65532",
        "65532",
    ]
    for folder in ("/", "/opt/raybus", "/tmp", "/etc"):
        code, said = resting.run("python", "-c", f"open('{folder}/new', 'w')")
        assert code == 1, folder
        assert "OSError" in said or "PermissionError" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_starts(resting: Running, command: str) -> None:
    assert command in output(resting, command, "--help")
    assert output(resting, command, "--version").strip() == PROJECT["version"]


def test_it_holds_no_tools(resting: Running) -> None:
    assert python(resting, TOOLS).split() == []


def test_no_program_lends_the_rights_of_another_user(resting: Running) -> None:
    assert python(resting, PRIVILEGED).split() == []


def test_nothing_is_compiled_at_the_start(resting: Running) -> None:
    assert python(resting, UNCOMPILED).split() == []


def test_its_bill_of_materials_has_every_distribution_in_its_exact_version(resting: Running) -> None:
    bill = json.loads(output(resting, "python", "-c", f"print(open('{SBOM}').read())"))
    listed = {scripted(part["name"]): part["version"] for part in [*bill["components"], bill["metadata"]["component"]]}
    installed = {scripted(name): version for name, version in json.loads(python(resting, DISTRIBUTIONS)).items()}

    assert bill["bomFormat"] == "CycloneDX"
    assert len(installed) > 30
    assert listed == installed


def test_its_versions_are_those_that_are_tested(resting: Running) -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if "==" in line)
    pinned = {scripted(name): version for name, version in tested.items()} | {"raybus": PROJECT["version"]}
    installed = {scripted(name): version for name, version in json.loads(python(resting, DISTRIBUTIONS)).items()}

    assert installed == {name: pinned.get(name) for name in installed}


def test_the_bill_of_materials_is_kept_beside_the_image(image: str, resting: Running) -> None:
    kept = Path(ROOT / "build" / "raybus.cdx.json")
    if not kept.exists():
        pytest.skip("the image was built elsewhere: RAYBUS_TEST_IMAGE")

    assert json.loads(kept.read_text()) == json.loads(output(resting, "python", "-c", f"print(open('{SBOM}').read())"))


def test_a_container_that_runs_no_service_is_healthy(resting: Running) -> None:
    assert resting.run("python", "-m", "raybus.observe.healthcheck") == (0, "ok\n")

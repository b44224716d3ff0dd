"""The documentation agrees with the code: docs/reference is what `make docs` writes, and every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.scripts import module

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "docs" / "reference"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _texts() -> list[Path]:
    """Markdown files of the repository; what a run leaves behind (.venv, caches) is not read."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:  # an unpacked archive
        return [path for path in ROOT.rglob("*.md") if not any(part.startswith(".") for part in path.parts)]
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).exists()]


generate = module(ROOT / "docs" / "generate.py")


PAGES = (
    "api.md", "commands.md", "events.md", "metrics.md", "nats-permissions.md", "rights.md", "settings.md", "values.md",
)  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_what_the_code_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RAYBUS_NATS_URL", "RAYBUS_PARTITIONS", "CLUSTER_DOMAIN"):
        monkeypatch.setenv(variable, "7")  # whoever runs it, the pages are the same

    written = (REFERENCE / name).read_text()

    assert written == generate.pages()[name], "run `make docs` and commit what it writes"


def test_nothing_else_is_in_the_reference() -> None:
    assert {path.name for path in REFERENCE.iterdir()} == set(generate.pages())


def test_every_field_of_the_tables_exists() -> None:
    """A field that is called unsupported, or said to be the autoscaler's, is one of the API's."""
    clusters, jobs = (
        {path for path, _, _ in generate.leaves(model, "spec", stop=stop)}
        for model, stop in (
            (generate.RayClusterSpec, {f for f, _, _ in generate.raybus_cluster_ctrl.decide.unsupported.FIELDS}),
            (generate.RayJobSpec, {f"spec.{f}" for f, _, _ in generate.raybus_job_ctrl.decide.unsupported.FIELDS}),
        )
    )
    of_clusters = {f for f, _, _ in generate.raybus_cluster_ctrl.decide.unsupported.FIELDS if f.startswith("spec.")}
    of_jobs = {f"spec.{f}" for f, _, _ in generate.raybus_job_ctrl.decide.unsupported.FIELDS}

    assert of_clusters <= clusters
    assert clusters >= generate.READ_BY_AUTOSCALER
    assert of_jobs <= jobs


@pytest.mark.parametrize("path", _texts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for target in LINK.findall(path.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and anchor not in _anchors(there)):
            broken.append(target)

    assert broken == []


def _anchors(path: Path) -> set[str]:
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in HEADING.findall(path.read_text())
    }

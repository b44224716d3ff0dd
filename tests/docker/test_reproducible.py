"""The same sources give the same image: two builds without the cache, file by file."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import containers
from support.containers import Engine

pytestmark = [pytest.mark.docker, pytest.mark.night, pytest.mark.timeout(3600)]

ENGINES_OWN = {".dockerenv", "dev", "proc", "sys", "etc", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab"}
"""What the engine makes or changes in each container."""


CONTEXT = (
    ".dockerignore",
    "LICENSE",
    "README.md",
    "constraints.txt",
    "pyproject.toml",
    "deploy/images",
    "services",
    "shared",
)


class Stream:
    """An iterator of chunks as the file that tarfile reads."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and (chunk := next(self._chunks, b"")):
            self._rest += chunk
        given, self._rest = self._rest[:size], self._rest[size:]
        return given


def files(engine: Engine, image: str) -> dict[str, tuple[Any, ...]]:
    """Path -> everything that an image layer holds of it."""
    container = engine.client.containers.create(image)
    try:
        with tarfile.open(fileobj=Stream(iter(container.export())), mode="r|") as tar:
            return {
                entry.name: told(tar, entry)
                for entry in tar
                if entry.name not in ENGINES_OWN and not entry.name.startswith(("dev/", "proc/", "sys/"))
            }
    finally:
        container.remove()


def told(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> tuple[Any, ...]:
    """Without the time of folders: some engines make those that they copy into anew."""
    content = tar.extractfile(entry) if entry.isfile() else None
    digest = hashlib.file_digest(content, "sha256").hexdigest() if content else ""
    time = None if entry.isdir() else entry.mtime
    return entry.type, entry.mode, entry.uid, entry.gid, entry.linkname, time, digest


def frozen_sources(folder: Path) -> Path:
    """What the image is built from, as it is now: nobody changes it between the two builds."""
    for name in CONTEXT:
        source = containers.ROOT / name
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return folder


def test_two_builds_have_the_same_files(engine: Engine, tmp_path: Path) -> None:
    names = ["raybus-test/reproducible:first", "raybus-test/reproducible:second"]
    sources = frozen_sources(tmp_path)
    try:
        for name in names:
            containers.build(engine, name, "--no-cache", sources=sources)
        first, second = (files(engine, name) for name in names)
    finally:
        for name in filter(engine.has, names):
            engine.client.images.remove(name)

    assert len(first) > 5000
    assert {path for path in first | second if first.get(path) != second.get(path)} == set()

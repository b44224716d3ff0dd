"""The same sources give the same image: two builds without the cache, file by file."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from support import containers
from support.containers import Engine

pytestmark = [pytest.mark.docker, pytest.mark.night, pytest.mark.timeout(3600)]

ENGINES_OWN = {".dockerenv", "dev", "proc", "sys", "etc", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab"}
"""What the engine makes or changes in each container."""


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
                entry.name: (
                    entry.mode,
                    entry.uid,
                    entry.gid,
                    entry.mtime,
                    entry.type,
                    entry.linkname,
                    digest(tar, entry),
                )
                for entry in tar
                if entry.name not in ENGINES_OWN and not entry.name.startswith(("dev/", "proc/", "sys/"))
            }
    finally:
        container.remove()


def digest(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> str:
    content = tar.extractfile(entry) if entry.isfile() else None
    return hashlib.file_digest(content, "sha256").hexdigest() if content else ""


def test_two_builds_have_the_same_files(engine: Engine) -> None:
    names = ["raybus-test/reproducible:first", "raybus-test/reproducible:second"]
    try:
        for name in names:
            containers.build(engine, name, "--no-cache")
        first, second = (files(engine, name) for name in names)
    finally:
        for name in filter(engine.has, names):
            engine.client.images.remove(name)

    assert len(first) > 5000
    assert {path for path in first | second if first.get(path) != second.get(path)} == set()

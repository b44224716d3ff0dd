"""Builds a container's root from the steps of rootfs.py, inside the container's own mount namespace, and moves into it."""

# ruff: noqa: PTH101, PTH103, PTH112, PTH114, PTH115, PTH116, PTH120, PTH123, PTH211 -- paths below another root are text here, and much of this runs in a forked process

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence

from raybus_localkube.node import syscalls
from raybus_localkube.node.rootfs import Step

_LINKS_MAX = 40


class MountError(Exception):
    """A step failed; the text names the path and the reason."""


def enter_root(root: str, steps: Sequence[Step]) -> None:
    """Make `root` (an empty folder) the file system of this process, with everything of `steps` in it. Raises MountError."""
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount(root, root, flags=syscalls.MS_BIND)
    for step in steps:
        try:
            _apply(root, step)
        except OSError as error:
            raise MountError(f"{step.kind} {step.source or step.target} at {step.target}: {error}") from error
    os.chdir(root)
    # Stacks the old root on the new one; detaching "." then uncovers the new one. No folder for the old root is needed.
    syscalls.pivot_root(".", ".")
    syscalls.umount(".")
    os.chdir("/")


def resolve(root: str, path: str) -> str:
    """The host path of the container's `path`; links are followed as the container would, so none leads out of `root`."""
    parts = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    here: list[str] = []
    links = 0
    while parts:
        part = parts.pop()
        if part == "..":
            here[-1:] = []
            continue
        candidate = "/".join([root, *here, part])
        if not os.path.islink(candidate):
            here.append(part)
            continue
        links += 1
        if links > _LINKS_MAX:
            raise OSError(40, "too many levels of symbolic links", path)
        target = os.readlink(candidate)
        if target.startswith("/"):
            here = []
        parts += [piece for piece in reversed(target.split("/")) if piece not in ("", ".")]
    return "/".join([root, *here])


def _apply(root: str, step: Step) -> None:
    if step.kind == "link":
        _make_link(root, step)
        return
    target = resolve(root, step.target)
    if step.kind == "folder":
        os.makedirs(target, exist_ok=True)
        os.chmod(target, step.mode)
    elif step.kind == "text":
        _write(target, step)
    elif step.kind == "read-only":
        syscalls.read_only(target)
    elif step.kind == "bind":
        _bind(root, target, step)
    else:
        os.makedirs(target, exist_ok=True)
        _mount_new(target, step)


def _make_link(root: str, step: Step) -> None:
    parent, name = os.path.split(step.target)
    folder = resolve(root, parent)
    os.makedirs(folder, exist_ok=True)
    os.symlink(step.source, f"{folder}/{name}")


def _write(target: str, step: Step) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w", encoding="utf-8") as file:
        file.write(step.source)
    os.chmod(target, step.mode)


def _bind(root: str, target: str, step: Step) -> None:
    folder = stat.S_ISDIR(os.stat(step.source).st_mode)
    try:
        _make_place(target, folder=folder)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        _add_place(root, target, folder=folder)
    syscalls.mount(step.source, target, flags=syscalls.MS_BIND | syscalls.MS_REC)
    if step.read_only:
        syscalls.read_only(target)


def _make_place(target: str, *, folder: bool) -> None:
    if os.path.lexists(target):
        return
    if folder:
        os.makedirs(target)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def _add_place(root: str, target: str, *, folder: bool) -> None:
    """Make a mount point in a read-only folder of the host: a read-only overlay adds it, the host's folder stays as it is."""
    base = os.path.dirname(target)
    while not os.path.isdir(base):
        base = os.path.dirname(base)
    # The file systems of pods lie under a folder of this name beside their roots, on the same disk.
    skeleton = f"{root}.places/{base[len(root) :].strip('/').replace('/', '.')}"
    _make_place(skeleton + target[len(base) :], folder=folder)
    syscalls.mount("overlay", base, "overlay", syscalls.MS_RDONLY, f"lowerdir={skeleton}:{base}")


def _mount_new(target: str, step: Step) -> None:
    harmless = syscalls.MS_NOSUID | syscalls.MS_NODEV
    if step.kind == "tmpfs":
        data = f"mode={step.mode:o}" + (f",size={step.size}" if step.size else "")
        syscalls.mount("tmpfs", target, "tmpfs", harmless, data)
    elif step.kind == "proc":
        syscalls.mount("proc", target, "proc", harmless | syscalls.MS_NOEXEC)
    else:
        syscalls.mount(
            "devpts", target, "devpts", syscalls.MS_NOSUID | syscalls.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"
        )

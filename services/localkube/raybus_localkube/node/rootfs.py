# ruff: noqa: S108 -- these are paths in the container
"""What a container's file system consists of, as a list of steps.

Pure. What may live here: which host folders are bound where, in which order, and what each file says. Doing it is mounts.py's part.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from raybus_localkube.node.protocol import Mount

HOME = "/home/ray"
TOOLS = "/opt/raybus/bin"  # where the shims are
HOST_ETC = "/opt/raybus/etc"  # the host's /etc, which the links in the pod's /etc point to
OWN_ETC = ("hosts", "hostname", "resolv.conf", "passwd", "group", "nsswitch.conf", "mtab")
FOLDERS = (
    HOME,
    "/tmp/ray",
    "/run/lock",
    "/var/tmp",
    "/var/log",
    "/var/lib",
    "/var/cache",
    "/root",
    "/mnt",
    "/srv",
    "/opt",
)
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
                "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"}  # fmt: skip
PERIOD_US = 100_000

Kind = Literal["folder", "bind", "tmpfs", "proc", "devpts", "link", "text", "read-only"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `target` is a path in the container. `source` is a host path, a link's target or a file's text."""

    kind: Kind
    target: str
    source: str = ""
    read_only: bool = False
    size: int = 0
    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class HostLayout:
    """What the host has.

    System folders (name -> link target, "" for a real folder), the Python environment's folders, the names in /etc that pods see,
    and the texts of files in /etc that are the pods' own.
    """

    system: dict[str, str]
    prefixes: tuple[str, ...]
    etc: tuple[str, ...]
    etc_files: dict[str, str]
    tools: str
    devices: tuple[str, ...] = DEVICES
    sys: bool = True


@dataclass(frozen=True, slots=True)
class PodFiles:
    """The host paths of files that all containers of a pod share."""

    hosts: str
    hostname: str
    resolv_conf: str


@dataclass(frozen=True, slots=True)
class Sizing:
    """What programs are told about the machine: CPU in cores, memory and shared memory in bytes."""

    cpu: float
    memory: int
    shared_memory: int = field(default=0)


def minimal_prefixes(prefixes: Iterable[str]) -> tuple[str, ...]:
    """Absolute, without those that lie in another or in a system folder."""
    wanted = sorted({posixpath.normpath(prefix) for prefix in prefixes if prefix.startswith("/")})
    kept: list[str] = []
    for prefix in wanted:
        if prefix == "/" or prefix.split("/")[1] in SYSTEM:
            continue
        if not any(prefix.startswith(other + "/") for other in kept):
            kept.append(prefix)
    return tuple(kept)


def plan(host: HostLayout, pod: PodFiles, sizing: Sizing, mounts: Sequence[Mount], message_path: str) -> list[Step]:
    """All steps for one container, in order; the root itself is an empty writable folder.

    Mounts come last, outer targets before inner ones, so that a volume may lie at any path, also over a system folder.
    """
    steps = [Step("folder", path, mode=0o1777 if path in ("/tmp/ray", "/var/tmp") else 0o755) for path in FOLDERS]
    steps.append(Step("folder", "/tmp", mode=0o1777))
    steps.append(Step("link", "/var/run", "/run"))
    steps += _system(host)
    steps += _etc(host, pod)
    steps.append(Step("proc", "/proc"))
    steps += _sys(host, sizing)
    steps += _dev(host, sizing)
    steps += [Step("bind", prefix, prefix, read_only=True) for prefix in host.prefixes]
    targets = {posixpath.normpath(mount["target"]) for mount in mounts}
    if message_path and message_path not in targets:
        steps.append(Step("text", message_path, "", mode=0o666))
    ordered = sorted(mounts, key=lambda mount: posixpath.normpath(mount["target"]).count("/"))
    steps += [Step("bind", posixpath.normpath(m["target"]), m["source"], read_only=m["read_only"]) for m in ordered]
    return steps


def _system(host: HostLayout) -> list[Step]:
    steps = []
    for name, link in host.system.items():
        if link:
            steps.append(Step("link", f"/{name}", link))
        else:
            steps.append(Step("bind", f"/{name}", f"/{name}", read_only=True))
    steps.append(Step("bind", TOOLS, host.tools, read_only=True))
    return steps


def _etc(host: HostLayout, pod: PodFiles) -> list[Step]:
    """A folder of links to the host's files, so that it can be written and mounted into as an image's /etc can."""
    steps = [Step("bind", HOST_ETC, "/etc", read_only=True), Step("folder", "/etc")]
    steps += [Step("link", f"/etc/{name}", f"{HOST_ETC}/{name}") for name in host.etc]
    steps += [Step("text", f"/etc/{name}", text, mode=0o644) for name, text in host.etc_files.items()]
    steps.append(Step("link", "/etc/mtab", "/proc/self/mounts"))
    files = (("hosts", pod.hosts), ("hostname", pod.hostname), ("resolv.conf", pod.resolv_conf))
    return steps + [Step("bind", f"/etc/{name}", source) for name, source in files]


def _sys(host: HostLayout, sizing: Sizing) -> list[Step]:
    steps = [Step("bind", "/sys", "/sys", read_only=True)] if host.sys else [Step("folder", "/sys/fs/cgroup")]
    steps.append(Step("tmpfs", "/sys/fs/cgroup", size=1 << 20))
    steps += [Step("text", f"/sys/fs/cgroup/{name}", text) for name, text in cgroup_files(sizing).items()]
    steps.append(Step("read-only", "/sys/fs/cgroup"))
    return steps


def cgroup_files(sizing: Sizing) -> dict[str, str]:
    """The files of cgroup version 2 from which Ray and the JVM size themselves. They inform; nothing is enforced."""
    return {
        "cgroup.controllers": "cpu memory\n",
        "cpu.max": f"{max(1, round(sizing.cpu * PERIOD_US))} {PERIOD_US}\n",
        "memory.max": f"{sizing.memory}\n",
        # Without these Ray would take what the whole machine uses for its own use.
        "memory.current": "0\n",
        "memory.stat": "anon 0\nfile 0\ninactive_file 0\nactive_file 0\n",
    }


def _dev(host: HostLayout, sizing: Sizing) -> list[Step]:
    steps = [Step("tmpfs", "/dev", size=1 << 20)]
    steps += [Step("bind", f"/dev/{name}", f"/dev/{name}") for name in host.devices]
    steps += [Step("link", f"/dev/{name}", target) for name, target in DEVICE_LINKS.items()]
    steps.append(Step("devpts", "/dev/pts"))
    steps.append(Step("tmpfs", "/dev/shm", size=sizing.shared_memory or sizing.memory, mode=0o1777))
    return steps


def hosts_file(hostname: str, ip: str, aliases: Sequence[tuple[str, Sequence[str]]]) -> str:
    lines = ["127.0.0.1\tlocalhost", f"{ip}\t{hostname}"]
    lines += [f"{address}\t{' '.join(names)}" for address, names in aliases]
    return "\n".join(lines) + "\n"


def resolv_conf(nameserver: str, search: Sequence[str], options: Sequence[str]) -> str:
    lines = [f"nameserver {nameserver}"]
    if search:
        lines.append("search " + " ".join(search))
    if options:
        lines.append("options " + " ".join(options))
    return "\n".join(lines) + "\n"


def passwd_file(original: str) -> str:
    """The host's users, with the pod's home for root, which is who the pod's processes are."""
    others = [line for line in original.splitlines() if line and line.split(":", 3)[2:3] != ["0"]]
    return "\n".join([f"root:x:0:0:root:{HOME}:/bin/bash", *others]) + "\n"

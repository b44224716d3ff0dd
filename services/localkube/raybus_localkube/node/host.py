"""Can this machine run pods? Each thing that is missing is named, with what to do about it.

`python -m raybus_localkube.node.host` says it in lines, what is missing and then the remedy, with exit code 1; nothing and 0 if all is well.
"""

from __future__ import annotations

import errno
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from raybus_localkube.node import rootfs, syscalls
from raybus_localkube.node.netlink import Netlink

_CHECK_BRIDGE = "rbcheck0"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is missing, and the remedy."""

    missing: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.missing}. {self.remedy}"


def check_host() -> list[Problem]:
    """What stands in the way of local pods; an empty list if nothing does. Tries it in a child process for real."""
    if platform.system() != "Linux":
        what = f"Local pods need Linux, this is {platform.system()}"
        return [Problem(what, "Use a Linux machine or virtual machine, or a cluster: raybus up --kubeconfig FILE")]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            problem = _try_sandbox()
            os.write(write, f"{problem.missing}\0{problem.remedy}".encode() if problem else b"")
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return [Problem(*text.split("\0"))] if text else []


def enter_namespaces() -> None:
    """New user, mount, network, host name, IPC and pid namespaces (the last for children), in which we are root."""
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(
        syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWUTS
        | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWPID
    )  # fmt: skip
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def _try_sandbox() -> Problem | None:
    try:
        enter_namespaces()
    except OSError as error:
        return _no_namespaces(error)
    try:
        with Netlink() as net:
            net.set_up("lo")
            net.add_bridge(_CHECK_BRIDGE)
            own = os.open("/proc/self/ns/net", os.O_RDONLY)
            net.add_veth("rbcheck1", "rbcheck2", own, _CHECK_BRIDGE)
    except OSError as error:
        return Problem(
            f"The kernel cannot make network bridges and veth pairs here ({error.strerror})",
            "Load the modules `bridge` and `veth` (modprobe bridge veth), or allow them in the container that this runs in",
        )
    child = os.fork()  # the first process of the new pid namespace, which a new /proc needs
    if child == 0:
        try:
            syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
            syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
            syscalls.mount("tmpfs", "/dev/shm", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV)  # noqa: S108 -- a mount point
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        return Problem(
            "A new /proc or tmpfs cannot be mounted in a user namespace here: parts of /proc are masked, as in most containers",
            "Run outside of the container, or start it with --security-opt systempaths=unconfined --security-opt seccomp=unconfined",
        )
    return None


def _no_namespaces(error: OSError) -> Problem:
    limits = {"user.max_user_namespaces": "/proc/sys/user/max_user_namespaces"}
    for name, path in limits.items():
        if _read(path) == "0":
            return Problem(f"User namespaces are switched off ({name} = 0)", f"As root: sysctl -w {name}=28633")
    if _read("/proc/sys/kernel/unprivileged_userns_clone") == "0" and os.geteuid() != 0:
        name = "kernel.unprivileged_userns_clone"
        return Problem(f"User namespaces are for root only ({name} = 0)", f"As root: sysctl -w {name}=1")
    if _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" and os.geteuid() != 0:
        name = "kernel.apparmor_restrict_unprivileged_userns"
        return Problem(f"AppArmor refuses user namespaces ({name} = 1)", f"As root: sysctl -w {name}=0")
    if error.errno in (errno.ENOSYS, errno.EINVAL):
        return Problem(
            "This kernel has no user namespaces",
            "Use a kernel with CONFIG_USER_NS, or a cluster: raybus up --kubeconfig FILE",
        )
    return Problem(
        f"User namespaces are refused ({error.strerror})",
        "In a container, start it with --security-opt seccomp=unconfined; elsewhere ask who rules this machine, "
        "or use a cluster: raybus up --kubeconfig FILE",
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def layout(tools: Path) -> rootfs.HostLayout:
    """What this host can bind into pods; `tools` is the folder of shims."""
    system = {}
    for name in rootfs.SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            system[name] = str(path.readlink())
        elif path.is_dir():
            system[name] = ""
    etc = tuple(sorted(entry.name for entry in Path("/etc").iterdir() if entry.name not in rootfs.OWN_ETC))
    etc_files = {
        "passwd": rootfs.passwd_file(_read("/etc/passwd")),
        "group": (_read("/etc/group") or "root:x:0:") + "\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    prefixes = rootfs.minimal_prefixes([sys.prefix, sys.base_prefix, sys.exec_prefix])
    devices = tuple(name for name in rootfs.DEVICES if Path("/dev", name).exists())
    return rootfs.HostLayout(system, prefixes, etc, etc_files, str(tools), devices)


def main() -> int:
    problems = check_host()
    for problem in problems:
        print(problem.missing, problem.remedy, sep="\n")  # noqa: T201 -- this is a command
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

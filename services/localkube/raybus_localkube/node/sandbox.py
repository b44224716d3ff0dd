"""The node's processes and namespaces.

The outer process stays in the host's namespaces: it holds the lock, opens the sockets that the host sees, connects to the API server
for the inner one, and passes SIGTERM on. The inner process is process 1 of a pid namespace with everything of the node in it. If either
is killed, the kernel ends the inner one, and with it every pod.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from raybus_localkube.node import dial, host, syscalls

SOCKET_PATH_MAX = 100  # the kernel's limit is 107
BACKLOG = 512


class NodeStartError(Exception):
    """The node cannot start; the text names the thing and the remedy."""


@dataclass(slots=True)
class Sockets:
    """What the inner process gets from the outer one."""

    requests: socket.socket
    proxy: socket.socket
    dial: socket.socket


def lock(folder: Path, what: str = "node") -> int:
    """One node, and one kubelet, per folder. Raises NodeStartError."""
    descriptor = os.open(folder / f"{what}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise NodeStartError(f"a {what} runs in {folder} already; stop it, or choose another --dir") from None
    return descriptor


def open_sockets(folder: Path, proxy_port: int) -> tuple[Sockets, socket.socket]:
    """(the inner process' sockets, the outer end of the dial channel). Raises NodeStartError."""
    path = folder / "node.sock"
    if len(str(path)) > SOCKET_PATH_MAX:
        raise NodeStartError(f"{path}: a socket's path may have {SOCKET_PATH_MAX} characters; choose a shorter --dir")
    path.unlink(missing_ok=True)
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    requests.bind(str(path))
    path.chmod(0o600)
    requests.listen(BACKLOG)
    try:
        proxy = socket.create_server(("127.0.0.1", proxy_port), backlog=BACKLOG)
    except OSError as error:
        raise NodeStartError(
            f"port {proxy_port} on 127.0.0.1: {os.strerror(error.errno or 0)}; choose another --proxy-port"
        ) from error
    outer, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Sockets(requests, proxy, inner), outer


def fork_inside(run: Callable[[], int]) -> int:
    """Start `run` as process 1 of the sandbox; its process id as we see it. Raises OSError.

    A process cannot enter a new pid namespace, only its children can. So a middle process makes the namespaces, forks and ends; as
    subreaper we inherit the inner one, which goes on when it has seen that (else its parent's end would be the middle one's).
    """
    syscalls.become_subreaper()
    go_read, go_write = os.pipe()
    told_read, told_write = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            os.close(go_write)
            host.enter_namespaces()
            inner = os.fork()
            if inner == 0:
                os.close(told_write)
                _inner(run, go_read)
            os.write(told_write, b"+")
        except OSError as error:
            os.write(told_write, str(error).encode())
        finally:
            os._exit(0)
    os.close(told_write)
    os.close(go_read)
    told = os.read(told_read, 1024)
    os.close(told_read)
    os.waitpid(middle, 0)
    if told != b"+":
        raise OSError(told.decode() or "the sandbox did not come up")
    # The inner process is our only child now.
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    os.write(go_write, b"+")
    return int(children[-1])


def _inner(run: Callable[[], int], go: int) -> None:
    if os.read(go, 1) != b"+":
        os._exit(1)  # the outer process is gone already
    syscalls.die_with_parent(signal.SIGKILL)
    os.set_blocking(go, False)  # the outer process never closes its end: an end of file says that it has ended just now
    try:
        os.read(go, 1)
        os._exit(1)
    except BlockingIOError:
        pass
    try:
        os._exit(run())
    except BaseException:  # noqa: BLE001 -- a forked process: nothing above may go on
        traceback.print_exc()
        os._exit(1)


def stand_by(inner: int, channel: socket.socket) -> int:
    """Serve the inner process until it ends; its exit code."""
    selector = selectors.DefaultSelector()
    dialer = dial.HostDialer(channel, selector)
    selector.register(channel, selectors.EVENT_READ, lambda _: dialer.serve())
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.kill(inner, signal.SIGTERM))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector.register(wake_read, selectors.EVENT_READ, lambda _: os.read(wake_read, 512))
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == inner:
            return os.waitstatus_to_exitcode(status)
        for key, _ in selector.select(dialer.expire()):
            key.data(key.fileobj)

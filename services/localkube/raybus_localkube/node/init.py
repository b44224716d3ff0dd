"""Process 1 of a container: it builds the root, starts the program, starts probes and hooks beside it, and reports ends.

It is forked from the node process, not executed, so that hundreds of containers share its memory. It talks to the node over a
SOCK_SEQPACKET pair, one JSON object per packet:

    from the node   {"op": "signal", "signal"}   to the program
                    {"op": "exec", "id", "argv", "env"} with the output's descriptor; {"op": "exec-kill", "id"}
    to the node     {"started": pid} | {"failed": text, "code": n}
                    {"exec": id, "code"}         a negative code is a signal; 126/127 with "failed": could not start
                    {"exited": code, "signal": n, "message": text}   the last word

When process 1 ends, the kernel ends everything in the container; when the node ends, process 1 does.
"""

# ruff: noqa: PTH103, PTH110, PTH112, PTH113, PTH118, PTH123, PTH208 -- paths below another root are text here, and much of this runs in a forked process

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Never

import orjson

from raybus_localkube.node import mounts, syscalls
from raybus_localkube.node.rootfs import Step

PACKET = 256 * 1024
MESSAGE_MAX = 4096
# What container runtimes leave to programs: files of other owners, signals, low ports, raw sockets, chroot.
CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})
_DEFAULT_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
NOT_FOUND = 127
NOT_EXECUTABLE = 126
START_ERROR = 128


@dataclass(slots=True)
class Launch:
    """Everything process 1 needs; descriptors are open in the forked process."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    root: str
    steps: Sequence[Step]
    control: socket.socket
    stdout: int
    stderr: int
    namespaces: Sequence[tuple[int, int]]
    message_path: str


@dataclass(slots=True)
class _State:
    program: int = 0
    execs: dict[int, int] = field(default_factory=dict)  # pid -> id


class StartError(Exception):
    """The program cannot be started; `code` is the exit code a shell would give."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def find_program(name: str, env: Mapping[str, str], cwd: str) -> str:
    """The path that `name` stands for by the PATH of `env`. Raises StartError."""
    if "/" in name:
        path = os.path.join(cwd, name)
        if not os.path.exists(path):
            raise StartError(NOT_FOUND, f'exec: "{name}": no such file or directory')
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            raise StartError(NOT_EXECUTABLE, f'exec: "{name}": permission denied')
        return path
    for folder in env.get("PATH", "").split(":"):
        path = os.path.join(cwd, folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise StartError(NOT_FOUND, f'exec: "{name}": executable file not found in $PATH')


def enter_and_run(launch: Launch) -> Never:
    """Called in a forked child of the node: becomes (through one more fork) process 1 of a new container. Never returns."""
    try:
        _close_all_but(launch)
        for fd, kind in launch.namespaces:
            syscalls.setns(fd, kind)
        syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID)
        child = os.fork()
        if child:
            _send(launch.control, {"init": child})
            os._exit(0)
        _run(launch)
    except Exception as error:  # noqa: BLE001 -- the process has no other way to say why it ends
        _send(launch.control, {"failed": f"{type(error).__name__}: {error}", "code": START_ERROR})
    finally:
        os._exit(1)


def _close_all_but(launch: Launch) -> None:
    """The node's connections must not be held open by the containers that were forked meanwhile."""
    kept = {0, 1, 2, launch.control.fileno(), launch.stdout, launch.stderr, *(fd for fd, _ in launch.namespaces)}
    signal.set_wakeup_fd(-1)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _run(launch: Launch) -> Never:
    syscalls.set_process_name("raybus-init")
    os.umask(0o022)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    state = _State()
    try:
        mounts.enter_root(launch.root, launch.steps)
        syscalls.keep_capabilities(CAPABILITIES)
        syscalls.hide_memory()
        os.makedirs(launch.cwd, exist_ok=True)
        os.chdir(launch.cwd)
        outputs = (launch.stdout, launch.stderr)
        state.program = _spawn(launch.argv, launch.env, launch.cwd, outputs)
    except (StartError, mounts.MountError, OSError) as error:
        code = error.code if isinstance(error, StartError) else START_ERROR
        _send(launch.control, {"failed": str(error), "code": code})
        os._exit(0)
    os.close(launch.stdout)
    os.close(launch.stderr)
    _send(launch.control, {"started": state.program})
    _loop(launch, state, wake_read)


def _loop(launch: Launch, state: _State, wake: int) -> Never:
    poller = select.poll()
    poller.register(launch.control, select.POLLIN)
    poller.register(wake, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poller.poll()}
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            _reap(launch, state)
        if launch.control.fileno() in ready:
            _take_order(launch, state)


def _reap(launch: Launch, state: _State) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        code = os.waitstatus_to_exitcode(status)
        if pid == state.program:
            number = -code if code < 0 else 0
            message = _termination_message(launch.message_path)
            _send(launch.control, {"exited": 128 + number if number else code, "signal": number, "message": message})
            os._exit(0)
        if pid in state.execs:
            _send(launch.control, {"exec": state.execs.pop(pid), "code": code})


def _termination_message(path: str) -> str:
    if not path:
        return ""
    try:
        with open(path, "rb") as file:
            return file.read(MESSAGE_MAX).decode(errors="replace")
    except OSError:
        return ""


def _take_order(launch: Launch, state: _State) -> None:
    data, descriptors, _, _ = socket.recv_fds(launch.control, PACKET, 1)
    if not data:
        os._exit(1)  # the node is gone, and so shall be the container
    order = orjson.loads(data)
    if order["op"] == "signal":
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.program, order["signal"])
    elif order["op"] == "exec-kill":
        for pid, known in list(state.execs.items()):
            if known == order["id"]:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
    elif order["op"] == "exec":
        _exec(launch, state, order, descriptors[0])


def _exec(launch: Launch, state: _State, order: dict[str, Any], output: int) -> None:
    try:
        pid = _spawn(order["argv"], launch.env, launch.cwd, (output, output))
        state.execs[pid] = order["id"]
    except (StartError, OSError) as error:
        code = error.code if isinstance(error, StartError) else NOT_EXECUTABLE
        _send(launch.control, {"exec": order["id"], "code": code, "failed": str(error)})
    finally:
        os.close(output)


def _spawn(argv: list[str], env: dict[str, str], cwd: str, outputs: tuple[int, int]) -> int:
    path = find_program(argv[0], env, cwd)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, outputs[0], 1),
        (os.POSIX_SPAWN_DUP2, outputs[1], 2),
    ]
    try:
        return os.posix_spawn(
            path, argv, env, file_actions=actions, setsid=True,
            setsigmask=(), setsigdef=_DEFAULT_SIGNALS,
        )  # fmt: skip
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            raise StartError(NOT_EXECUTABLE, f'exec: "{argv[0]}": exec format error') from error
        raise StartError(NOT_EXECUTABLE, f'exec: "{argv[0]}": {error.strerror}') from error


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the node is gone; the kernel ends us too
        control.send(orjson.dumps(message))

"""One container as the node sees it: its process 1, its output, the programs run beside it, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Never

import orjson

from raybus_localkube.node import init
from raybus_localkube.node.logs import LogFile
from raybus_localkube.node.protocol import ContainerRecord, ContainerSpec, NodeError, container_id

CHUNK = 64 * 1024
START_TIMEOUT_S = 20.0
DRAIN_TIMEOUT_S = 2.0  # for the last output, after the program has ended
EXEC_OUTPUT_MAX = 16 * 1024
EXECS_MAX = 32
KILLED = 128 + signal.SIGKILL


@dataclass(slots=True)
class Exec:
    """A program beside the container's own."""

    done: asyncio.Future[tuple[int, str]]
    output: bytearray = field(default_factory=bytearray)
    closed: asyncio.Event = field(default_factory=asyncio.Event)


class Container:
    """Made by `start`. `on_exit` is called once, after the last output was written."""

    def __init__(self, spec: ContainerSpec, on_exit: Callable[[Container], None]) -> None:
        self.id = container_id(spec["pod"], spec["name"], spec["attempt"])
        self.spec = spec
        self.record = ContainerRecord(
            id=self.id, pod=spec["pod"], name=spec["name"], attempt=spec["attempt"], running=True,
            started=time.time(), finished=0.0, exit_code=0, signal=0, reason="", message="",
        )  # fmt: skip
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._init_pid = 0
        self._execs: dict[int, Exec] = {}
        self._exec_number = 0
        self._last_word: dict[str, Any] | None = None
        self._open_streams = 0
        self._streams_closed = asyncio.Event()
        self.ended = asyncio.Event()
        self._log = LogFile(spec["log"])

    async def start(self, launch: Callable[[socket.socket, int, int], init.Launch]) -> None:
        """Fork process 1 and wait until the program runs. Raises NodeError; then the container has ended already."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        out, err = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            _child(launch, theirs, out[1], err[1])
        theirs.close()
        for (read, write), stream in ((out, "stdout"), (err, "stderr")):
            os.close(write)
            self._follow(read, stream)
        self._control = ours
        self._loop.add_reader(ours, self._on_packet)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._started
        except TimeoutError:
            self.kill(signal.SIGKILL)
            raise NodeError(f"container {self.spec['name']} did not start in {START_TIMEOUT_S:g} s") from None

    @property
    def running(self) -> bool:
        return self.record["running"]

    def kill(self, number: int) -> None:
        """Signal the program; SIGKILL ends process 1 and with it everything in the container."""
        if not self.running:
            return
        if number == signal.SIGKILL:
            if self._init_pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._init_pid, number)
            return
        self._order({"op": "signal", "signal": number})

    async def exec(self, argv: list[str], timeout_s: float) -> dict[str, Any]:
        """Run a program in the container: {code, output, timed_out}. Raises NodeError."""
        if not self.running:
            raise NodeError(f"container {self.spec['name']} is not running")
        if len(self._execs) >= EXECS_MAX:
            raise NodeError(f"container {self.spec['name']}: {EXECS_MAX} programs run in it already")
        self._exec_number += 1
        number, running = self._exec_number, Exec(self._loop.create_future())
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(write, True)
        self._execs[number] = running
        self._loop.add_reader(read, self._on_exec_output, read, running)
        try:
            self._order({"op": "exec", "id": number, "argv": argv}, write)
        finally:
            os.close(write)
        try:
            await asyncio.wait((running.done,), timeout=timeout_s)
            timed_out = not running.done.done()
            if timed_out:
                self._order({"op": "exec-kill", "id": number})
            code, failed = (KILLED, "") if timed_out else running.done.result()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0 if timed_out else DRAIN_TIMEOUT_S):
                    await running.closed.wait()
        finally:
            self._execs.pop(number, None)
            if not running.closed.is_set():
                self._loop.remove_reader(read)
                os.close(read)
        return {"code": code, "output": failed or running.output.decode(errors="replace"), "timed_out": timed_out}

    def _order(self, order: dict[str, Any], descriptor: int | None = None) -> None:
        with contextlib.suppress(OSError):  # it ends just now; its end is reported on its own
            socket.send_fds(self._control, [orjson.dumps(order)], [] if descriptor is None else [descriptor])

    def _follow(self, read: int, stream: str) -> None:
        os.set_blocking(read, False)
        self._open_streams += 1
        self._loop.add_reader(read, self._on_output, read, stream)

    def _on_output(self, read: int, stream: str) -> None:
        try:
            chunk = os.read(read, CHUNK)
        except BlockingIOError:
            return
        self._log.write(stream, chunk, time.time())
        if not chunk:
            self._loop.remove_reader(read)
            os.close(read)
            self._open_streams -= 1
            if not self._open_streams:
                self._streams_closed.set()

    def _on_exec_output(self, read: int, running: Exec) -> None:
        try:
            chunk = os.read(read, CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            self._loop.remove_reader(read)
            os.close(read)
            running.closed.set()
        elif len(running.output) < EXEC_OUTPUT_MAX:
            running.output += chunk[: EXEC_OUTPUT_MAX - len(running.output)]

    def _on_packet(self) -> None:
        try:
            data = self._control.recv(init.PACKET)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close_control()
            return
        message = orjson.loads(data)
        if "init" in message:
            self._init_pid = message["init"]
        elif "started" in message:
            self.record["started"] = time.time()
            self._settle(None)
        elif "exec" in message:
            running = self._execs.get(message["exec"])
            if running is not None and not running.done.done():
                running.done.set_result((message["code"], message.get("failed", "")))
        else:
            self._last_word = message

    def _settle(self, error: NodeError | None) -> None:
        if self._started.done():
            return
        if error is None:
            self._started.set_result(None)
        else:
            self._started.set_exception(error)

    def _close_control(self) -> None:
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._control)
        self._control.close()
        self._init_pid = 0  # the number may be another process' by now
        self._ending = self._loop.create_task(self._end())

    async def _end(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await self._streams_closed.wait()
        word = self._last_word or {"exited": KILLED, "signal": int(signal.SIGKILL), "message": ""}
        record = self.record
        record["running"] = False
        record["finished"] = time.time()
        if "failed" in word:
            record["exit_code"], record["reason"], record["message"] = init.START_ERROR, "StartError", word["failed"]
        else:
            record["exit_code"], record["signal"], record["message"] = word["exited"], word["signal"], word["message"]
        for running in self._execs.values():
            if not running.done.done():
                running.done.set_result((KILLED, "the container has ended"))
        self._log.close()
        self._settle(NodeError(record["message"]) if record["reason"] else None)
        self.ended.set()
        self._on_exit(self)


def _child(
    launch: Callable[[socket.socket, int, int], init.Launch], control: socket.socket, out: int, err: int
) -> Never:
    """In the forked process: nothing of the node's event loop may run here again."""
    try:
        init.enter_and_run(launch(control, out, err))
    finally:
        os._exit(1)

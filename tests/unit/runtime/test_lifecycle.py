"""The end of a service: the first signal asks, the second ends at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from raybus.runtime.lifecycle import EXIT_AT_ONCE, Stop, StoppedError


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_asks_for_the_end(number: signal.Signals) -> None:
    with Stop() as stop:
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 10)

        assert stop.asked


async def test_a_signal_ends_what_is_being_waited_for() -> None:
    cancelled = asyncio.Event()

    async def connect() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    with Stop() as stop:
        asyncio.get_running_loop().call_later(0.01, stop.ask)
        with pytest.raises(StoppedError):
            await stop.unless(connect())

    assert cancelled.is_set()


async def test_without_a_signal_the_result_or_the_error_comes_through() -> None:
    async def fails() -> None:
        raise KeyError("x")

    with Stop() as stop:
        assert await stop.unless(asyncio.sleep(0, "result")) == "result"
        with pytest.raises(KeyError):
            await stop.unless(fails())


def test_the_second_signal_ends_the_process_at_once() -> None:
    program = textwrap.dedent("""
        import asyncio
        from raybus.runtime.lifecycle import Stop
        async def main():
            with Stop() as stop:
                print("ready", flush=True)
                await stop.wait()
                print("draining", flush=True)
                await asyncio.sleep(600)
        asyncio.run(main())
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "draining\n"
        process.send_signal(signal.SIGTERM)

        assert process.wait(5) == EXIT_AT_ONCE

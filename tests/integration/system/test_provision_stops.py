"""`raybus provision` ends when its pod is to end, also while it waits for somebody."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{}}}}]
"""


async def test_it_ends_at_the_first_signal_while_the_api_server_is_silent(tmp_path: Path) -> None:
    """As the first process of a container it would ignore a signal that it has no handler for: there is no default then."""
    asked: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    silent = await asyncio.start_server(lambda _reader, writer: asked.put_nowait(writer), "127.0.0.1", 0)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(port=silent.sockets[0].getsockname()[1]))
    words = ["provision", "--kubeconfig", str(kubeconfig), "--namespace", "n", "--server-names", "nats"]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "raybus.cli.main", *words)
    try:
        connections = [await asyncio.wait_for(asked.get(), 60)]
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 15) == 130
        connections += [asked.get_nowait() for _ in range(asked.qsize())]
        for connection in connections:
            connection.close()
            await connection.wait_closed()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        silent.close()
        await silent.wait_closed()

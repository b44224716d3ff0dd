"""postStart and preStop hooks, and the signal that stops a container."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from typing import Any

from raybus_localkube.kubelet.handlers import Answer, Target
from raybus_localkube.kubelet.podspec import Container
from raybus_localkube.node.protocol import NodeError

TIMEOUT_S = 60.0  # of a postStart hook, which has no limit of its own in Kubernetes


async def run(target: Target, hook: Mapping[str, Any], timeout_s: float) -> Answer:
    """Carry out a hook; a node that cannot tell is a failure in its words."""
    if "sleep" in hook:
        await asyncio.sleep(min(float(hook["sleep"].get("seconds") or 0), timeout_s))
        return Answer(success=True)
    try:
        return await target.ask(hook, timeout_s)
    except NodeError as error:
        return Answer(success=False, text=str(error))


def stop_signal(container: Container) -> int:
    """SIGTERM, or what `lifecycle.stopSignal` names."""
    name = (container.get("lifecycle") or {}).get("stopSignal") or "SIGTERM"
    return int(getattr(signal, name, signal.SIGTERM))

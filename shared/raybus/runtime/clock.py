"""The clocks that everything in the runtime is given, so that a simulation can give its own.

Waiting is done on the event loop's timers (`call_at`, `asyncio.sleep`), which a simulation replaces with its loop.
"""

from __future__ import annotations

from raybus.bus.clock import SYSTEM, Clock, SystemClock

__all__ = ["SYSTEM", "Clock", "SystemClock"]

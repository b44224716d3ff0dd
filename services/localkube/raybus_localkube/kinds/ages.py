"""Ages and durations as the server prints them. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from raybus_localkube.kinds import scalars

DAY, YEAR = 24, 365


def human(seconds: float) -> str:
    """Such as 45s, 3m12s, 17h, 2d3h, 400d."""
    if seconds < -1:
        return "<invalid>"
    whole = max(0, int(seconds))
    minutes, hours = whole // 60, whole // 3600
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // DAY
    if hours < DAY * 8:
        return _two(days, "d", hours % DAY, "h")
    if days < 2 * YEAR:
        return f"{days}d"
    if days < 8 * YEAR:
        return _two(days // YEAR, "y", days % YEAR, "d")
    return f"{days // YEAR}y"


def _two(first: int, unit: str, second: int, small: str) -> str:
    return f"{first}{unit}{second}{small}" if second else f"{first}{unit}"


def since(text: str | None, now: datetime) -> timedelta | None:
    if not text:
        return None
    try:
        return now - scalars.parse_time(text)
    except ValueError:
        return None


def age(text: str | None, now: datetime) -> str:
    passed = since(text, now)
    return "<unknown>" if passed is None else human(passed.total_seconds())

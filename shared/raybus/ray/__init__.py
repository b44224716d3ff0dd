"""Ray's own HTTP APIs. Only this package talks to a Ray dashboard; it decides nothing."""

from raybus.ray.errors import NoAnswer, NotFound, RayError, Refused

__all__ = ["NoAnswer", "NotFound", "RayError", "Refused"]

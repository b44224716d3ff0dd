"""Subjects of JetStream's own API: the requests that Raybus makes, no more. Pure.

The client and the permissions of NATS users are both made from these, so that they cannot drift apart.
"""

from __future__ import annotations

_API = "$JS.API"


def stream_create(stream: str) -> str:
    return f"{_API}.STREAM.CREATE.{stream}"


def stream_update(stream: str) -> str:
    return f"{_API}.STREAM.UPDATE.{stream}"


def stream_info(stream: str) -> str:
    return f"{_API}.STREAM.INFO.{stream}"


def stream_purge(stream: str) -> str:
    return f"{_API}.STREAM.PURGE.{stream}"


def message_get(stream: str) -> str:
    """One message, as the stream's leader has it."""
    return f"{_API}.STREAM.MSG.GET.{stream}"


def consumer_create(stream: str) -> str:
    """An ephemeral consumer; the server draws its name."""
    return f"{_API}.CONSUMER.CREATE.{stream}"


def consumer_next(stream: str, consumer: str) -> str:
    """Ask for messages; `*` as the consumer stands for any of the stream."""
    return f"{_API}.CONSUMER.MSG.NEXT.{stream}.{consumer}"

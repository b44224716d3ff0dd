"""JetStream's own API: subjects and bodies of the requests that Raybus makes, no more. Pure.

The client and the permissions of NATS users are both made from these subjects, so that they cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raybus.bus.transport import StreamConfig, StreamInfo

_API = "$JS.API"
_SECOND = 1_000_000_000


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


def stream_settings(config: StreamConfig) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": config.name,
        "subjects": list(config.subjects),
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "num_replicas": config.replicas,
        "max_msgs_per_subject": config.max_msgs_per_subject,
        "max_msgs": -1,
        "max_consumers": -1,
        "max_bytes": config.max_bytes or -1,
        "max_age": config.max_age_s * _SECOND,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "deny_delete": config.deny_delete,
        "deny_purge": config.deny_purge,
        "compression": "s2" if config.compress else "none",
        "metadata": dict(config.metadata),
    }
    if config.marker_ttl_s:
        # Markers of expired messages need roll-up headers; the server would switch them on by itself.
        out |= {"subject_delete_marker_ttl": config.marker_ttl_s * _SECOND, "allow_rollup_hdrs": True}
    return out


def stream_state(answer: Mapping[str, Any]) -> StreamInfo:
    config, state = answer["config"], answer["state"]
    return StreamInfo(
        name=config["name"],
        created=answer["created"],
        messages=int(state["messages"]),
        last_seq=int(state["last_seq"]),
        metadata=config.get("metadata") or {},
    )

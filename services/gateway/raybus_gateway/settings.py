"""Settings of the gateway beside those of every service."""

from __future__ import annotations

from pydantic import Field

from raybus.bus.streams import DEFAULT_HISTORY_BYTES, DEFAULT_PARTITIONS
from raybus.runtime.settings import ServiceSettings


class GatewaySettings(ServiceSettings):
    health_port: int = Field(
        8081, ge=0, le=65535, description="port of /healthz, /readyz and /metrics; 0 takes a free one"
    )
    partitions: int = Field(DEFAULT_PARTITIONS, ge=1, le=1024, description="shares of the work of a controller")
    generation: int = Field(1, ge=1, description="raise it to change the number of partitions")
    stream_replicas: int = Field(1, ge=1, le=5, description="copies that NATS keeps of each stream")
    history_bytes: int = Field(
        DEFAULT_HISTORY_BYTES, ge=1 << 20, description="size limit of the history stream, in bytes"
    )
    relist_s: float = Field(1800.0, gt=0, description="seconds after which everything is listed again")

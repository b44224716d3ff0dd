"""Settings that every service has. Sources, first one wins: flags, environment RAYBUS_*, --config file, default.

A service adds its own fields in a subclass (services/<name>/.../settings.py): each field becomes a flag and a variable by itself;
its description is the help text. A field with a `validation_alias` is read from those variables as well.
"""

from __future__ import annotations

import re
import secrets
import socket
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from raybus.domain import names
from raybus.observe.logging import LEVELS
from raybus.runtime import configfile, gates


def new_replica_id() -> str:
    """`<host name>-<random>`: another one at each start, so that a restarted process never passes for its predecessor."""
    host = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname()).strip("-") or "host"
    return f"{host[:40]}-{secrets.token_hex(4)}"


class ServiceSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="RAYBUS_", extra="ignore", populate_by_name=True, frozen=True)

    nats_url: str = Field("nats://127.0.0.1:4222", description="NATS servers, separated by commas")
    nats_credentials_file: str = Field("", description="file with NATS credentials (JWT and seed)")
    nats_nkey_file: str = Field("", description="file with a NATS NKey seed")
    nats_ca_file: str = Field("", description="CA certificate of the NATS servers, for tls:// addresses")
    nats_inbox_prefix: str = Field("_INBOX", description="where answers arrive, for a NATS user with narrow rights")
    nats_wait_s: float = Field(60.0, gt=0, description="seconds to wait for NATS and its streams at the start")
    kubeconfig: str = Field(
        "", description="kubeconfig file; empty: KUBECONFIG, ~/.kube/config or the pod's service account"
    )
    namespaces: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="namespaces to look after, separated by commas; empty: all"
    )
    replica_id: str = Field(default_factory=new_replica_id, description="name of this process; default <host>-<random>")
    health_host: str = Field("127.0.0.1", description="address of /healthz, /readyz and /metrics")
    health_port: int = Field(
        8082, ge=0, le=65535, description="port of /healthz, /readyz and /metrics; 0 takes a free one"
    )
    log_format: Literal["json", "console"] = Field("json", description="json or console")
    log_level: str = Field("info", description=f"one of {', '.join(LEVELS)}")
    feature_gates: Annotated[dict[str, bool], NoDecode] = Field(
        default_factory=lambda: dict(gates.DEFAULTS), description="Name=true,Name=false"
    )
    workers: int = Field(64, ge=1, le=1024, description="passes that may run at the same time")
    queue_limit: int = Field(50_000, ge=1, description="queued keys above which the service reports itself not ready")
    lease_ttl_s: int = Field(12, ge=2, le=300, description="life of a partition lease without renewal, in seconds")
    drain_s: float = Field(10.0, gt=0, description="seconds that running passes have to end after SIGTERM")
    config: str = Field("", description="file of kind Configuration (config.ray.io/v1alpha1)")
    batch_scheduler: str = Field("", description="not supported yet: leave empty")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the names are the library's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - as above
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, configfile.Source(settings_cls, init_settings, env_settings)

    @field_validator("nats_url")
    @classmethod
    def _no_password(cls, value: str) -> str:
        if "@" in value:
            raise ValueError("must not contain a password, because it is shown in logs; use --nats-credentials-file")
        return value

    @field_validator("namespaces", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(filter(None, (part.strip() for part in value.split(",")))) if isinstance(value, str) else value

    @field_validator("feature_gates", mode="before")
    @classmethod
    def _gates(cls, value: Any) -> Any:
        return gates.parse(value) if isinstance(value, str) else value

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.lower() not in LEVELS:
            raise ValueError(f"must be one of {', '.join(LEVELS)}")
        return value.lower()

    @field_validator("replica_id")
    @classmethod
    def _fits_a_subject(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,63}", value):
            raise ValueError("must be 1 to 63 letters, digits, '-' or '_'")
        return value

    @field_validator("batch_scheduler")
    @classmethod
    def _no_batch_scheduler(cls, value: str) -> str:
        if value:
            raise ValueError("batch schedulers are not supported yet; leave this setting out (Kueue works without it)")
        return value


def also(upstream: str, field: str) -> AliasChoices:
    """For a field's `validation_alias`: read from RAYBUS_<FIELD>, else from the variable that KubeRay's operator has for it."""
    return AliasChoices(f"RAYBUS_{field}".upper(), upstream)


class ControllerSettings(ServiceSettings):
    """What more than one controller needs to know."""

    take_over: bool = Field(
        default=False, description="whether to start although a KubeRay operator is at work on the same namespaces"
    )
    cluster_domain: str = Field(
        names.DEFAULT_CLUSTER_DOMAIN,
        validation_alias=also("CLUSTER_DOMAIN", "cluster_domain"),
        description="DNS domain of the Kubernetes cluster",
    )
    cluster_ip_head_service: bool = Field(
        default=False,
        validation_alias=also("ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE", "cluster_ip_head_service"),
        description="whether head Services have an address of their own instead of being headless",
    )
    login_shell: bool = Field(
        default=False,
        validation_alias=also("ENABLE_LOGIN_SHELL", "login_shell"),
        description="whether generated commands run in a login shell",
    )

    @property
    def open_gates(self) -> frozenset[str]:
        return frozenset(gate for gate, on in self.feature_gates.items() if on)

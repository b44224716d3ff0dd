"""The --config file: kind Configuration of config.ray.io/v1alpha1, as the reference operator's chart renders it.

Fields with a meaning here are used. Those that are about how the reference runs as one process are taken and said to have no
effect, with what replaces them. Any other is refused by name, so that nobody believes in a setting that does nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

API_VERSION = "config.ray.io/v1alpha1"
FIELDS = {
    "watchNamespace": "namespaces",
    "logStdoutEncoder": "log_format",
    "batchScheduler": "batch_scheduler",
    "useKubernetesProxy": "use_kubernetes_proxy",
    "deleteRayJobAfterJobFinishes": "delete_job_with_cluster",
}
"""Field of the file -> setting. One that a service does not have is another service's, and passed over."""

WITHOUT_EFFECT = {
    "metricsAddr": "metrics are served at --health-host and --health-port, path /metrics",
    "probeAddr": "health is served at --health-host and --health-port, paths /healthz and /readyz",
    "enableMetrics": "metrics are always on",
    "enableLeaderElection": "all replicas work: partitions are shared by leases in NATS (--lease-ttl-s)",
    "leaderElectionNamespace": "leases are kept in NATS",
    "reconcileConcurrency": "--workers says how many passes run at the same time",
    "qps": "requests to the API server are limited by how many run at the same time, not by a rate",
    "burst": "requests to the API server are limited by how many run at the same time, not by a rate",
    "logFile": "logs go to standard error, where the platform collects them",
    "logFileEncoder": "logs go to standard error, as --log-format says",
}
"""Field of the file -> what replaces it."""

NOT_YET = (
    "enableBatchScheduler",
    "headSidecarContainers",
    "workerSidecarContainers",
    "defaultContainerEnvs",
    "defaultPodAnnotations",
    "defaultPodLabels",
)
"""Fields that would change what is made: taken only if they ask for nothing."""


class ConfigFileError(ValueError):
    """The file cannot be used; the text says which field or line, and what to do."""


def read(path: Path) -> dict[str, Any]:
    """Setting -> value. Raises ConfigFileError."""
    values = _fields(path)
    known = (*FIELDS, *WITHOUT_EFFECT, *NOT_YET)
    if unknown := sorted(set(values) - set(known)):
        raise ConfigFileError(f"{path}: unknown: {', '.join(unknown)} (known: {', '.join(known)})")
    if asked := [field for field in NOT_YET if values.get(field)]:
        raise ConfigFileError(f"{path}: not supported yet: {', '.join(asked)}; leave them out")
    return {FIELDS[field]: value for field, value in values.items() if field in FIELDS and value is not None}


def without_effect(path: Path) -> dict[str, str]:
    """Fields that the file sets and that do nothing here -> what replaces them. Raises ConfigFileError."""
    return {field: WITHOUT_EFFECT[field] for field in _fields(path) if field in WITHOUT_EFFECT}


def _fields(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigFileError(f"cannot read {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        raise ConfigFileError(f"{path}{f', line {place.line + 1}' if place else ''}: not valid YAML") from None
    if not isinstance(document, dict):
        raise ConfigFileError(f"{path}: expected a mapping with apiVersion {API_VERSION} and kind Configuration")
    if document.get("apiVersion") != API_VERSION or document.get("kind") != "Configuration":
        raise ConfigFileError(f"{path}: apiVersion must be {API_VERSION} and kind must be Configuration")
    return {field: value for field, value in document.items() if field not in ("apiVersion", "kind", "metadata")}


class Source(PydanticBaseSettingsSource):
    """The lowest of the sources; which file it is, the higher ones say."""

    def __init__(self, settings_cls: type[BaseSettings], *higher: PydanticBaseSettingsSource) -> None:
        super().__init__(settings_cls)
        self._higher = higher

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002 - the library's shape
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        path = next((given["config"] for source in self._higher if (given := source()).get("config")), "")
        if not path:
            return {}
        known = self.settings_cls.model_fields
        return {name: value for name, value in read(Path(str(path))).items() if name in known}

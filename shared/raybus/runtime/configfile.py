"""The --config file: kind Configuration of config.ray.io/v1alpha1, as the reference operator reads it.

Fields with a meaning here are used, any other is refused by name, so that nobody believes in a setting without effect.
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
    "reconcileConcurrency": "workers",
    "logStdoutEncoder": "log_format",
    "batchScheduler": "batch_scheduler",
    "useKubernetesProxy": "use_kubernetes_proxy",
}
"""Field of the file -> setting. One that a service does not have is another service's, and passed over."""


class ConfigFileError(ValueError):
    """The file cannot be used; the text says which field or line, and what to do."""


def read(path: Path) -> dict[str, Any]:
    """Setting -> value. Raises ConfigFileError."""
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
    values = {field: value for field, value in document.items() if field not in ("apiVersion", "kind", "metadata")}
    unknown = sorted(set(values) - set(FIELDS))
    if unknown:
        raise ConfigFileError(f"{path}: not supported: {', '.join(unknown)} (supported: {', '.join(FIELDS)})")
    return {FIELDS[field]: value for field, value in values.items()}


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

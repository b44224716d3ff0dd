"""Which representation the client takes: the object itself, a Table, metadata alone, JSON or YAML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raybus_localkube.server import errors

Form = Literal["object", "table", "metadata"]
OFFERED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"


@dataclass(frozen=True, slots=True)
class Representation:
    form: Form = "object"
    version: str = "v1"
    """Of Table or PartialObjectMetadata."""
    yaml: bool = False


PLAIN = Representation()


def clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    found = []
    for clause in accept.split(","):
        media, *pairs = [part.strip() for part in clause.split(";")]
        parameters = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        if media:
            found.append((media.lower(), parameters))
    return found


def negotiate(accept: str, *, tables: bool = True, watch: bool = False, listing: bool = False) -> Representation:
    """The first clause that can be served. ApiError 406 if there is none."""
    offers = clauses(accept)
    if not offers:
        return PLAIN
    for media, parameters in offers:
        if media not in ("application/json", "application/yaml", "*/*"):
            continue
        yaml = media == "application/yaml"
        if yaml and watch:
            continue
        wanted = parameters.get("as")
        if not wanted or media == "*/*":
            return Representation(yaml=yaml)
        version = parameters.get("v", "v1")
        if parameters.get("g") != "meta.k8s.io" or version not in ("v1", "v1beta1") or not tables:
            continue
        if wanted == "Table":
            return Representation("table", version, yaml)
        if wanted == ("PartialObjectMetadataList" if listing else "PartialObjectMetadata") or (
            watch and wanted == "PartialObjectMetadata"
        ):
            return Representation("metadata", version, yaml)
    if watch:
        message = f"406: Not Acceptable\n\nAvailable representations: {OFFERED}, {STREAMS}"
        raise errors.ApiError(406, "NotAcceptable", message, {})
    raise errors.ApiError(406, "NotAcceptable", f"only the following media types are accepted: {OFFERED}")


def check_include(include: str) -> None:
    if include not in ("", "None", "Metadata", "Object"):
        message = f"includeObject: Invalid value: \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
        raise errors.bad_request(f"Unable to convert to Table as requested: {message}")


def wants_aggregated(accept: str) -> bool:
    """Whether discovery shall be aggregated; an unknown version falls back to the plain form."""
    for media, parameters in clauses(accept):
        if media == "application/json":
            if parameters.get("as") == "APIGroupDiscoveryList" and parameters.get("v") == "v2":
                return parameters.get("g") == "apidiscovery.k8s.io"
            if "as" not in parameters:
                return False
    return False

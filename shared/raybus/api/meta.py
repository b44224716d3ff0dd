"""Wire types that all kinds of ray.io share: scalars of the Kubernetes API, metadata, conditions, errors of validation.

Pure. A model here is a view: it validates a given JSON object and gives typed access to it. What is written to Kubernetes is
never made from a model, so fields that this version does not know survive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

Json = Mapping[str, Any]

Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1), WithJsonSchema({"type": "integer", "format": "int32"})]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1), WithJsonSchema({"type": "integer", "format": "int64"})]
Float = Annotated[float, WithJsonSchema({"type": "number"})]
Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
StringMap = dict[str, str]
Quantity = Annotated[int | float | str, WithJsonSchema({"x-core": "Quantity"})]

# Core types stay as given; the definitions get their schema from data/core.json.
PodTemplate = Annotated[dict[str, Any], WithJsonSchema({"x-core": "PodTemplateSpec"})]
CoreService = Annotated[dict[str, Any], WithJsonSchema({"x-core": "Service"})]
ResourceRequirements = Annotated[dict[str, Any], WithJsonSchema({"x-core": "ResourceRequirements"})]
SecurityContext = Annotated[dict[str, Any], WithJsonSchema({"x-core": "SecurityContext"})]
EnvVar = Annotated[dict[str, Any], WithJsonSchema({"x-core": "EnvVar"})]
EnvVarSource = Annotated[dict[str, Any], WithJsonSchema({"x-core": "EnvVarSource"})]
EnvFromSource = Annotated[dict[str, Any], WithJsonSchema({"x-core": "EnvFromSource"})]
VolumeMount = Annotated[dict[str, Any], WithJsonSchema({"x-core": "VolumeMount"})]
IngressTLS = Annotated[dict[str, Any], WithJsonSchema({"x-core": "IngressTLS"})]
NetworkPolicyIngressRule = Annotated[dict[str, Any], WithJsonSchema({"x-core": "NetworkPolicyIngressRule"})]
NetworkPolicyEgressRule = Annotated[dict[str, Any], WithJsonSchema({"x-core": "NetworkPolicyEgressRule"})]

# Required in the definition although it has a default there: an absent value is filled in before it is missed.
DEFAULTED = {"x-required": True}

MANAGERS = ("ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue")
MANAGED_BY_RULES = {
    "x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "managedBy cannot be changed once it is set"},
        {
            "rule": f"self in [{', '.join(repr(name) for name in MANAGERS)}]",
            "message": f"managedBy must be one of {', '.join(MANAGERS)}",
        },
    ],
}
ManagedBy = Annotated[str, Field(json_schema_extra={**MANAGED_BY_RULES})]


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one field: its path, such as "spec.workerGroupSpecs[0].replicas", and what it should be."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class InvalidObject(ValueError):
    """An object that does not have the shape of its kind. `problems` names every field at fault."""

    def __init__(self, kind: str, name: str, problems: tuple[Problem, ...]) -> None:
        self.kind = kind
        self.name = name
        self.problems = problems
        super().__init__(f"{kind} {name!r} is invalid: " + "; ".join(str(problem) for problem in problems))


class Wire(BaseModel):
    """Base of all wire types: exact types, nothing coerced, unknown fields kept in `model_extra`."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", alias_generator=to_camel, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, given: Any) -> Any:
        """The API server prunes nulls before it fills in defaults, so they mean the same as nothing."""
        if isinstance(given, dict) and None in given.values():
            return {key: value for key, value in given.items() if value is not None}
        return given


class OwnerReference(Wire):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Wire):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: StringMap | None = None
    annotations: StringMap | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None


class Condition(Wire):
    """metav1.Condition; conditions of a status are a list-map by `type`."""

    type: Annotated[
        str,
        Field(
            max_length=316,
            pattern=(
                r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
            ),
        ),
    ]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    message: Annotated[str, Field(max_length=32768)]
    last_transition_time: Time
    observed_generation: Annotated[
        int | None, Field(ge=0), WithJsonSchema({"type": "integer", "format": "int64", "minimum": 0})
    ] = None


Conditions = Annotated[
    list[Condition],
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


class Root(Wire):
    """An object with identity. `parse` is the way in; it raises InvalidObject, never a validator's own error."""

    api_version: str
    kind: str
    metadata: ObjectMeta

    @classmethod
    def parse(cls, obj: Json) -> Self:
        try:
            return cls.model_validate(obj)
        except ValidationError as error:
            raise InvalidObject(cls.__name__, _name(obj), tuple(problem(each) for each in error.errors())) from None


def _name(obj: Any) -> str:
    meta = obj.get("metadata") if isinstance(obj, Mapping) else None
    return str(meta.get("name", "")) if isinstance(meta, Mapping) else ""


def problem(error: ErrorDetails, path: str = "") -> Problem:
    """In our own words; `path` is where the validated value stands in its object."""
    for part in error["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in ("int", "float", "str"):  # members of a union, not of the object
            path += f".{part}" if path else part
    return Problem(path or "<object>", _sentence(error))


# What is to be structured or any text may be a password by mistake: its value is not repeated.
_UNTOLD = {
    "string_type": "should be text",
    "list_type": "should be a list",
    "dict_type": "should be an object",
    "model_type": "should be an object",
    "model_attributes_type": "should be an object",
}


def _sentence(error: ErrorDetails) -> str:
    if error["type"] == "missing":
        return "is required"
    given = error["input"]
    if expected := _UNTOLD.get(error["type"]):
        return f"{expected}, not {_NAMES.get(type(given), type(given).__name__)}"
    message = error["msg"].removeprefix("Input ")
    return f"{message}, not {given!r}" if isinstance(given, str | int | float | bool | None) else message


_NAMES = {str: "text", int: "a number", float: "a number", bool: "true or false", list: "a list", dict: "an object"}

"""The body of a submission by HTTP, in the field names of Ray's Jobs API. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from raybus_job_ctrl.build import runtime_env

Json = Mapping[str, Any]


class ResourcesError(ValueError):
    """`spec.entrypointResources` is no JSON object of numbers."""


def submit_request(spec: Json, submission_id: str) -> dict[str, Any]:
    """What is sent to Ray; the entrypoint as written. Raises runtime_env.RuntimeEnvError and ResourcesError."""
    body: dict[str, Any] = {}
    if text := spec.get("runtimeEnvYAML"):
        body["runtime_env"] = runtime_env.parse(text)
    if metadata := spec.get("metadata"):
        body["metadata"] = metadata
    if text := spec.get("entrypointResources"):
        body["entrypoint_resources"] = parse_resources(text)
    body["entrypoint"] = str(spec.get("entrypoint") or "")
    body["submission_id"] = submission_id
    for key, field in (("entrypoint_num_cpus", "entrypointNumCpus"), ("entrypoint_num_gpus", "entrypointNumGpus")):
        if number := spec.get(field):
            body[key] = number
    return body


def redacted(text: str, request: Json) -> str:
    """What Ray says about a request, without the values of its variables: Ray repeats those that it does not like."""
    runtime = request.get("runtime_env")
    variables = runtime.get("env_vars") if isinstance(runtime, Mapping) else None
    if not isinstance(variables, Mapping):
        return text
    values = sorted({str(value) for value in variables.values()} - {""}, key=len, reverse=True)
    whole = "|".join(re.escape(value) for value in values)
    return re.sub(rf"(?<!\w)(?:{whole})(?!\w)", "***", text) if values else text


def parse_resources(text: str) -> dict[str, float]:
    """Resource name -> amount. Raises ResourcesError, whose words say what is wrong."""
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise ResourcesError(f"not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise ResourcesError('must be a JSON object such as {"accelerator": 1}')
    for name, amount in found.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise ResourcesError(f"the amount of {name!r} must be a number, not {json.dumps(amount)[:50]}")
    return found


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number")

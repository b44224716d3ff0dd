"""Wire types of RayCronJob, ray.io/v1. Pure; see meta.py for what a wire type is and is not."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from raybus.api.meta import Root, Time, Wire
from raybus.api.rayjob import RayJobSpec


class RayCronJobSpec(Wire):
    schedule: str
    job_template: RayJobSpec
    time_zone: Annotated[str | None, Field(json_schema_extra={"minLength": 1})] = None
    suspend: bool | None = None


class RayCronJobStatus(Wire):
    last_schedule_time: Time | None = None


class RayCronJob(Root):
    spec: RayCronJobSpec | None = None
    status: RayCronJobStatus | None = None

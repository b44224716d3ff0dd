"""Reasons of the events that job_ctrl emits, all of them. Pure data; docs/reference/events.md is made from `DEEDS` and `COMPLAINTS`."""

from __future__ import annotations

from raybus.decide.reasons import NOT_SUPPORTED, Complaint, creation, deletion, update

CREATE_CLUSTER = creation("RayCluster", "the job's cluster")
DELETE_CLUSTER = deletion("RayCluster", "the cluster of a job that has ended, when its time to live is over")
CREATE_SUBMITTER = creation("RayJobSubmitter", "the Kubernetes Job that submits")
CREATE_SERVICE = creation("Service", "the RayJob's own address of the dashboard")
UPDATE_SERVICE = update("Service", "the RayJob's own address leads to another cluster now")

METADATA = Complaint(reason="InvalidRayJobMetadata", meaning="the name cannot be used")
SPEC = Complaint(reason="InvalidRayJobSpec", meaning="the spec cannot work; the note names the field and the remedy")

DEEDS = (CREATE_CLUSTER, DELETE_CLUSTER, CREATE_SUBMITTER, CREATE_SERVICE, UPDATE_SERVICE)
COMPLAINTS = (METADATA, SPEC, NOT_SUPPORTED)

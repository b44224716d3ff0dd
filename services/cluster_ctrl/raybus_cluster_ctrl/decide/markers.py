"""Names of failures: what an action that did not succeed means for the condition ReplicaFailure. Pure data."""

from __future__ import annotations

DELETE_HEAD = "FailedDeleteHeadPod"
CREATE_HEAD = "FailedCreateHeadPod"
DELETE_WORKER = "FailedDeleteWorkerPod"
CREATE_WORKER = "FailedCreateWorkerPod"
# The first one of a pass is told.
ORDER = (DELETE_HEAD, CREATE_HEAD, DELETE_WORKER, CREATE_WORKER)

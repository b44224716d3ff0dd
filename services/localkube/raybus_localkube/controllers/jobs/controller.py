"""The index of Jobs and their pods. Pure; decide.py says what is done with it."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from raybus.decide.tree import RootKey
from raybus.domain.kinds import JOB, POD, Kind
from raybus.kube.errors import AlreadyExists, KubeError
from raybus_localkube.controllers import work
from raybus_localkube.controllers.controller import Controller, Keys, Ref
from raybus_localkube.controllers.jobs.decide import decide, release
from raybus_localkube.controllers.jobs.facts import JobView, PodFact, owning_job, pod_fact
from raybus_localkube.controllers.jobs.status import Pass
from raybus_localkube.controllers.work import Call, Json, Work

FOREIGN_AFTER = 3
"""A pod that exists already is ours, and the watch lags, unless it is still unknown after so many attempts."""


class Jobs(Controller):
    """Keys are uids of Jobs, also of Jobs that are gone: their pods must be let go."""

    name = "jobs"
    kinds = frozenset({JOB, POD})

    def __init__(self) -> None:
        self._jobs: dict[str, JobView] = {}
        self._pods: dict[str, dict[str, PodFact]] = {}
        self._job_of: dict[str, str] = {}
        self._refused: dict[str, Counter[str]] = {}  # names of pods that existed already, by uid of the Job
        self._written: dict[str, datetime] = {}

    def changed(self, kind: Kind, obj: Json) -> Keys:
        meta = obj["metadata"]
        namespace, uid = meta["namespace"], meta["uid"]
        if kind == JOB:
            self._jobs[uid] = JobView(obj)
            return (self.key(namespace, uid),)
        job, owned = owning_job(obj)
        before = self._job_of.get(uid)
        if before is not None and before != job:
            self._forget_pod(uid)
        if not job:
            return (self.key(namespace, before),) if before is not None else ()
        fact = pod_fact(obj, owned=owned)
        self._job_of[uid] = job
        self._pods.setdefault(job, {})[uid] = fact
        return (self.key(namespace, job),)

    def gone(self, kind: Kind, ref: Ref) -> Keys:
        if kind == JOB:
            self._jobs.pop(ref.uid, None)
            self._refused.pop(ref.uid, None)
            self._written.pop(ref.uid, None)
            return (self.key(ref.namespace, ref.uid),)
        job = self._forget_pod(ref.uid)
        return (self.key(ref.namespace, job),) if job else ()

    def decide(self, key: RootKey, now: datetime) -> Work:
        job, pods = self._jobs.get(key.name), list(self._pods.get(key.name, {}).values())
        if job is None:
            return Work(steps=work.steps([release(key.namespace, pod) for pod in pods if pod.tracked]))
        foreign = {name for name, times in self._refused.get(key.name, Counter()).items() if times >= FOREIGN_AFTER}
        planned = decide(Pass(job, pods, {pod.name for pod in pods} | foreign, now, self._written.get(key.name)))
        if any(call.kind == JOB and call.method == "PATCH" for step in planned.steps for call in step):
            self._written[key.name] = now
        return planned

    def answered(self, key: RootKey, call: Call, answer: dict[str, Any] | KubeError) -> Keys:
        if call.method == "POST" and isinstance(answer, AlreadyExists) and call.body:
            self._refused.setdefault(key.name, Counter())[call.body["metadata"]["name"]] += 1
        return ()

    def _forget_pod(self, uid: str) -> str:
        job = self._job_of.pop(uid, "")
        pods = self._pods.get(job, {})
        pods.pop(uid, None)
        if not pods:
            self._pods.pop(job, None)
        return job

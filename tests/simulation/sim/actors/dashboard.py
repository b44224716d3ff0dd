"""Ray's heads: what their dashboards know about jobs. Each start of a head container is an incarnation with records of its own.

What may live here: the life of jobs on a head, and its answers. How an answer is lost stands in ports/ray.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from raybus.ray.http import Answer
from simulation.sim.actors.apiserver import Json
from simulation.sim.loop import Process

if TYPE_CHECKING:
    from simulation.sim.world import World

ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
WHO = "ray"


@dataclass(slots=True)
class Job:
    request: Json
    status: str = "PENDING"
    start_ms: int = 0
    end_ms: int = 0

    def record(self, name: str) -> Json:
        return {
            "type": "SUBMISSION", "submission_id": name, "status": self.status, "message": f"ray: {self.status.lower()}",
            "entrypoint": self.request.get("entrypoint", ""), "start_time": self.start_ms, "end_time": self.end_ms,
        }  # fmt: skip


@dataclass(slots=True)
class Head:
    """One incarnation. `pod` is the uid of its pod."""

    session: str
    cluster: str
    pod: str
    jobs: dict[str, Job] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Submission:
    """A job that a head has taken."""

    name: str
    session: str
    cluster: str
    at: float
    who: str


class Dashboards:
    """`heads` are all incarnations that ever were, `submissions` all jobs that ever began; `verdict` is how jobs end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.process = Process(world.loop, WHO)
        self.heads: dict[tuple[str, int], Head] = {}
        self.submissions: list[Submission] = []
        self.verdict = "SUCCEEDED"

    # Which head

    def head_at(self, address: str) -> Head | None:
        """The head that answers under a Service's name; None if nothing does."""
        service, namespace = address.partition(":")[0].split(".")[:2]
        found = self._world.api.get("services", namespace, service)
        if found is None:
            return None
        wanted = found["spec"].get("selector") or {}
        for pod in self._world.api.all("pods"):
            marks = pod["metadata"].get("labels") or {}
            if pod["metadata"]["namespace"] == namespace and wanted.items() <= marks.items() and serves(pod):
                return self.head_of(pod)
        return None

    def head_of(self, pod: Json) -> Head:
        meta = pod["metadata"]
        key = (meta["uid"], restarts(pod))
        if key not in self.heads:
            session = f"session_{len(self.heads) + 1}"
            self.heads[key] = Head(session, meta["labels"]["ray.io/cluster"], meta["uid"])
            self._world.story.tell(WHO, f"head {meta['name']} begins {session}")
        return self.heads[key]

    def lives(self, head: Head) -> bool:
        """Its process runs, whether or not it answers."""
        return any(
            runs(pod) and self.heads.get((pod["metadata"]["uid"], restarts(pod))) is head
            for pod in self._world.api.all("pods")
        )

    # What it answers

    def answer(self, head: Head, method: str, path: str, body: Any, who: str) -> Answer:
        if path == "/api/version":
            return _json({"version": "4", "ray_version": "2.52.0", "session_name": head.session})
        name, _, verb = path.removeprefix("/api/jobs/").partition("/")
        if not name:
            return self._submit(head, body, who)
        job = head.jobs.get(name)
        if job is None:
            return Answer(404, f"Job {name} does not exist".encode())
        if verb == "stop":
            stopped = job.status not in ENDED
            if stopped:
                self._become(head, name, "STOPPED")
            return _json({"stopped": stopped})
        return _json(job.record(name))

    def _submit(self, head: Head, body: Json, who: str) -> Answer:
        name = body["submission_id"]
        if name in head.jobs:
            words = f"Job with submission_id {name} already exists. Please use a different submission_id."
            return Answer(500, words.encode())
        head.jobs[name] = Job(body)
        submission = Submission(name, head.session, head.cluster, self._world.loop.now, who)
        self.submissions.append(submission)
        self._world.story.mark("submitted", name, head.session)
        self._world.story.tell(WHO, f"{head.session} takes job {name} from {who}")
        self._world.submitted(submission)
        self._later(0.3, 1.0, head, name, "RUNNING")
        return _json({"submission_id": name, "job_id": name})

    def _later(self, least: float, most: float, head: Head, name: str, status: str) -> None:
        self.process.call_later(self._world.between(least, most), self._step, head, name, status)

    def _step(self, head: Head, name: str, status: str) -> None:
        if not self.lives(head) or head.jobs[name].status in ENDED:
            return
        self._become(head, name, status)
        if status == "RUNNING":
            self._later(2.0, 6.0, head, name, self.verdict)

    def _become(self, head: Head, name: str, status: str) -> None:
        job, now = head.jobs[name], int(self._world.now().timestamp() * 1000)
        job.status = status
        job.start_ms = job.start_ms or now
        job.end_ms = now if status in ENDED else 0
        self._world.story.mark("job", name, status)
        self._world.story.tell(WHO, f"{head.session}: job {name} is {status}")


def runs(pod: Json) -> bool:
    status = pod.get("status") or {}
    states = status.get("containerStatuses") or ()
    return status.get("phase") == "Running" and bool(states) and all("running" in each["state"] for each in states)


def serves(pod: Json) -> bool:
    """Whether a dashboard answers in this pod."""
    return runs(pod) and all(each["ready"] for each in pod["status"]["containerStatuses"])


def restarts(pod: Json) -> int:
    return sum(each["restartCount"] for each in (pod.get("status") or {}).get("containerStatuses") or ())


def _json(obj: Any) -> Answer:
    return Answer(200, orjson.dumps(obj))

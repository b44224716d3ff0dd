"""What a pod's state leads to: steps, phase and final phase, by case and by property."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybus_localkube.kubelet import lifecycle, status
from raybus_localkube.kubelet.lifecycle import ContainerView, Finish, Kill, PodView, Prepare, Run, Start, Stop, Teardown

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(
    *,
    policy: str = "Always",
    init: int = 0,
    main: int = 1,
    grace: int = 30,
    deleted: datetime | None = None,
    **spec: Any,
) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "p", "namespace": "ns", "uid": "u"}
    if deleted is not None:
        meta["deletionTimestamp"] = deleted.isoformat().replace("+00:00", "Z")
        meta["deletionGracePeriodSeconds"] = grace
    return {
        "metadata": meta,
        "spec": {
            "restartPolicy": policy,
            "terminationGracePeriodSeconds": grace,
            "initContainers": [{"name": f"i{n}"} for n in range(init)],
            "containers": [{"name": f"c{n}"} for n in range(main)],
            **spec,
        },
    }


def running(attempt: int = 0) -> ContainerView:
    return ContainerView(run=Run(attempt, NOW), started=True, ready=True)


def over(code: int, attempt: int = 0) -> ContainerView:
    run = Run(attempt, NOW - timedelta(seconds=5), running=False, finished=NOW, exit_code=code)
    return lifecycle.ended(running(attempt), run)


def view(**containers: ContainerView) -> PodView:
    return PodView(containers=containers, ip="10.244.0.2", prepared=True, started_at=NOW)


def steps(obj: dict[str, Any], known: PodView, now: datetime = NOW) -> tuple[object, ...]:
    return lifecycle.next_steps(obj, known, now).steps


def test_a_new_pod_gets_its_place_first() -> None:
    assert steps(pod(), PodView()) == (Prepare(),)


def test_a_place_that_failed_is_tried_again_later() -> None:
    later = NOW + timedelta(seconds=3)
    plan = lifecycle.next_steps(pod(), PodView(retry_at=later), NOW)
    assert plan == lifecycle.Steps(wake_at=later)
    assert steps(pod(), PodView(retry_at=later), later) == (Prepare(),)


def test_init_containers_run_one_after_the_other() -> None:
    obj = pod(init=2, main=2)
    assert steps(obj, view()) == (Start("i0", 0),)
    assert steps(obj, view(i0=running())) == ()
    assert steps(obj, view(i0=over(0))) == (Start("i1", 0),)
    assert steps(obj, view(i0=over(0), i1=over(0))) == (Start("c0", 0), Start("c1", 0))


def test_a_failed_init_container_starts_again_or_fails_the_pod() -> None:
    assert steps(pod(init=1), view(i0=over(1))) == (Start("i0", 1),)
    failed = pod(init=1, policy="Never")
    assert lifecycle.final_phase(failed, view(i0=over(1))) == "Failed"
    assert steps(failed, view(i0=over(1))) == (Teardown(),)


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
def test_restart_policies(policy: str, code: int, again: bool) -> None:
    obj = pod(policy=policy)
    assert (Start("c0", 1) in steps(obj, view(c0=over(code)))) is again
    assert lifecycle.final_phase(obj, view(c0=over(code))) == ("" if again else "Failed" if code else "Succeeded")


def test_a_container_may_have_a_policy_of_its_own() -> None:
    obj = pod(policy="Never", main=2)
    obj["spec"]["containers"][1]["restartPolicy"] = "OnFailure"
    assert steps(obj, view(c0=running(), c1=over(1))) == (Start("c1", 1),)
    assert steps(obj, view(c0=running(), c1=over(0))) == ()
    obj["spec"]["containers"][1]["restartPolicyRules"] = [
        {"action": "Restart", "exitCodes": {"operator": "In", "values": [0]}}
    ]
    assert steps(obj, view(c0=running(), c1=over(0))) == (Start("c1", 1),)


def test_the_second_crash_waits() -> None:
    crashed = lifecycle.ended(replace(over(1), run=Run(1, NOW)), Run(1, NOW, running=False, finished=NOW, exit_code=1))
    plan = lifecycle.next_steps(pod(), view(c0=crashed), NOW)
    assert plan == lifecycle.Steps(wake_at=NOW + timedelta(seconds=10))
    assert steps(pod(), view(c0=crashed), NOW + timedelta(seconds=10)) == (Start("c0", 2),)


def test_an_unhealthy_container_is_stopped_once_and_killed_at_its_deadline() -> None:
    sick = replace(running(), unhealthy="failed its liveness probe")
    (stop,) = steps(pod(grace=7), view(c0=sick))
    assert isinstance(stop, Stop)
    assert stop.grace == timedelta(seconds=7)
    asked = replace(sick, kill_at=NOW + timedelta(seconds=7))
    assert lifecycle.next_steps(pod(), view(c0=asked), NOW).wake_at == asked.kill_at
    assert steps(pod(), view(c0=asked), NOW + timedelta(seconds=7)) == (Kill("c0"),)


def test_deletion_stops_everything_then_finishes() -> None:
    obj = pod(main=2, deleted=NOW + timedelta(seconds=30))
    stops = steps(obj, view(c0=running(), c1=running()))
    assert [step.grace.total_seconds() for step in stops if isinstance(step, Stop)] == [30, 30]
    assert steps(obj, view(c0=over(0), c1=over(1))) == (Finish(),)
    assert steps(obj, PodView()) == (Finish(),)


def test_a_shorter_grace_brings_the_deadline_nearer() -> None:
    asked = replace(running(), kill_at=NOW + timedelta(seconds=30))
    obj = pod(grace=1, deleted=NOW + timedelta(seconds=1))
    assert lifecycle.next_steps(obj, view(c0=asked), NOW).wake_at == NOW + timedelta(seconds=1)
    assert steps(obj, view(c0=asked), NOW + timedelta(seconds=1)) == (Kill("c0"),)


def test_a_killed_container_is_not_killed_again_at_once() -> None:
    killed = replace(running(), kill_at=NOW + timedelta(seconds=5), killed=True)
    obj = pod(grace=0, deleted=NOW - timedelta(seconds=60))
    assert lifecycle.next_steps(obj, view(c0=killed), NOW) == lifecycle.Steps(wake_at=killed.kill_at)


def test_what_is_unsupported_never_starts_but_can_be_deleted() -> None:
    stuck = PodView(unsupported=("spec.hostNetwork",))
    assert lifecycle.next_steps(pod(), stuck, NOW) == lifecycle.Steps()
    assert steps(pod(deleted=NOW), stuck) == (Finish(),)


def test_the_active_deadline_ends_the_pod() -> None:
    obj = pod(activeDeadlineSeconds=60)
    assert lifecycle.next_steps(obj, view(c0=running()), NOW).wake_at == NOW + timedelta(seconds=60)
    late = NOW + timedelta(seconds=60)
    assert isinstance(steps(obj, view(c0=running()), late)[0], Stop)
    assert steps(obj, view(c0=over(143)), late) == (Teardown(),)
    assert status.phase_of(obj, view(c0=over(143)), late) == "Failed"
    assert status.build(obj, view(c0=over(143)), "127.0.0.1", late)["reason"] == "DeadlineExceeded"


def test_a_written_final_phase_stays() -> None:
    obj = pod() | {"status": {"phase": "Failed"}}
    assert steps(obj, PodView()) == ()
    assert steps(obj, view(c0=running()))[0] == Stop("c0", timedelta(seconds=30), "the pod has ended")


@st.composite
def any_container(draw: st.DrawFn) -> ContainerView:
    attempt = draw(st.integers(0, 3))
    kind = draw(st.sampled_from(["none", "running", "over", "stopping", "problem"]))
    if kind == "none":
        return ContainerView()
    if kind == "running":
        return running(attempt)
    if kind == "stopping":
        return replace(
            running(attempt), kill_at=NOW + timedelta(seconds=draw(st.integers(-5, 5))), killed=draw(st.booleans())
        )
    if kind == "problem":
        return ContainerView(
            problem=("CreateContainerConfigError", "x"), retry_at=NOW + timedelta(seconds=draw(st.integers(-5, 5)))
        )
    return over(draw(st.integers(0, 2)), attempt)


@given(
    policy=st.sampled_from(["Always", "OnFailure", "Never"]),
    containers=st.lists(any_container(), min_size=4, max_size=4),
    deleted=st.booleans(),
    prepared=st.booleans(),
)
def test_rules_that_hold_always(policy: str, containers: list[ContainerView], deleted: bool, prepared: bool) -> None:
    obj = pod(policy=policy, init=2, main=2, deleted=NOW if deleted else None)
    known = replace(view(**dict(zip(("i0", "i1", "c0", "c1"), containers, strict=True))), prepared=prepared)
    plan = lifecycle.next_steps(obj, known, NOW)
    started = [step for step in plan.steps if isinstance(step, Start)]
    for step in started:
        assert not deleted
        assert prepared
        assert not known.of(step.name).running
        assert step.attempt == known.of(step.name).next_attempt
    if any(step.name.startswith("c") for step in started):
        assert all(known.of(name).run is not None and known.of(name).run.succeeded for name in ("i0", "i1"))
    assert len([step for step in started if step.name.startswith("i")]) <= 1
    if any(isinstance(step, Finish | Teardown) for step in plan.steps):
        assert not any(container.running for container in containers)
    built = status.build(obj, known, "127.0.0.1", NOW)
    assert built["phase"] in ("Pending", "Running", "Succeeded", "Failed")
    if status_is_ready(built):
        assert all(entry["ready"] for entry in built["containerStatuses"])
    # Written once, it is not written again.
    stored = obj | {"status": built}
    assert status.patch(built, status.build(stored, known, "127.0.0.1", NOW + timedelta(seconds=9))) is None


def status_is_ready(built: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in built["conditions"])

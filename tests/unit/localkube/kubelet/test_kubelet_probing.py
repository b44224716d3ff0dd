"""When probes are asked and what their answers mean."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from raybus_localkube.kubelet import backoff, probing
from raybus_localkube.kubelet.backoff import BackOff
from raybus_localkube.kubelet.lifecycle import ContainerView, Run
from raybus_localkube.kubelet.probing import Probe, Tally

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READINESS = Probe("readiness", {"exec": {}}, initial_delay_s=10, timeout_s=5, period_s=5, successes=1, failures=3)
LIVENESS = Probe("liveness", {"exec": {}}, initial_delay_s=30, timeout_s=5, period_s=5, successes=1, failures=2)


def test_readiness_is_asked_from_the_start_and_often() -> None:
    assert probing.first_delay(READINESS, 0) == 0
    assert probing.next_delay(READINESS, Tally(), took_s=0.001) == probing.EAGER_S
    assert probing.next_delay(READINESS, Tally(), took_s=0.1) == 0.1 * probing.EAGER_RATIO
    assert probing.next_delay(READINESS, Tally(), took_s=10) == READINESS.period_s
    assert probing.next_delay(READINESS, Tally(True, 1), took_s=0.001) == READINESS.period_s


def test_liveness_keeps_its_delay_and_period() -> None:
    assert probing.first_delay(LIVENESS, 4) == 26
    assert probing.first_delay(LIVENESS, 40) == 0
    assert probing.next_delay(LIVENESS, Tally(), took_s=0.001) == 5


def test_an_early_success_counts_an_early_failure_does_not() -> None:
    early = probing.observe(READINESS, Tally(), success=False, age_s=1)
    assert (early.failures, early.verdict) == (0, None)
    assert probing.observe(READINESS, early, success=True, age_s=1.4).verdict is True


def test_failures_between_two_periods_count_once() -> None:
    tally = Tally()
    for age in (10, 10.4, 10.8, 11.2):
        tally = probing.observe(READINESS, tally, success=False, age_s=age)
    assert tally.failures == 1
    for age in (15, 20):
        tally = probing.observe(READINESS, tally, success=False, age_s=age)
    assert tally.verdict is False


def test_ready_is_lost_after_so_many_failures_in_a_row() -> None:
    tally = Tally(True, 1, 0, 10)
    for age in (15, 20):
        tally = probing.observe(READINESS, tally, success=False, age_s=age)
        assert tally.verdict is True
    broken = probing.observe(READINESS, tally, success=True, age_s=22)
    assert (broken.verdict, broken.failures) == (True, 0)
    assert probing.observe(READINESS, tally, success=False, age_s=25).verdict is False


@given(st.lists(st.tuples(st.booleans(), st.floats(0.1, 20)), max_size=60))
def test_no_verdict_sooner_than_kubernetes_would_give_up(answers: list[tuple[bool, float]]) -> None:
    tally, age = Tally(), 0.0
    for success, pause in answers:
        age += pause
        before, tally = tally, probing.observe(LIVENESS, tally, success=success, age_s=age)
        if tally.verdict is False and before.verdict is not False:
            assert age >= LIVENESS.initial_delay_s
            assert not success


def test_specs_are_read_with_the_defaults_of_kubernetes() -> None:
    container = {
        "startupProbe": {"exec": {}},
        "livenessProbe": {"exec": {}, "initialDelaySeconds": 3, "failureThreshold": 120},
    }
    found = probing.probes(container)
    assert list(found) == ["startup", "liveness"]
    assert found["startup"] == Probe("startup", {"exec": {}}, 0, 1, 10, 1, 3)
    assert (found["liveness"].initial_delay_s, found["liveness"].failures) == (3, 120)


def test_what_a_start_and_findings_make_of_a_container() -> None:
    run = Run(0, NOW)
    plain = probing.began({}, ContainerView(), run)
    assert (plain.started, plain.ready) == (True, True)
    probed = {"startupProbe": {"exec": {}}, "readinessProbe": {"exec": {}}, "livenessProbe": {"exec": {}}}
    began = probing.began(probed, ContainerView(unhealthy="before"), run)
    assert (began.started, began.ready, began.unhealthy) == (False, False, "")
    started = probing.found(probed, began, "startup", verdict=True)
    assert (started.started, started.ready) == (True, False)
    assert probing.found(probed, started, "readiness", verdict=True).ready
    assert "liveness" in probing.found(probed, started, "liveness", verdict=False).unhealthy


def test_back_off_doubles_to_five_minutes_and_forgives() -> None:
    state, moment, delays = BackOff(), NOW, []
    for _ in range(9):
        state = state.ended(moment, moment)
        delays.append(state.delay.total_seconds())
        assert state.until is not None
        moment = state.until
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300, 300]
    assert state.ended(moment - timedelta(minutes=10), moment).delay == timedelta(0)


def test_back_off_is_taken_up_from_the_restart_count() -> None:
    assert backoff.resumed(3, None) == BackOff()
    assert backoff.resumed(0, NOW).until == NOW
    assert backoff.resumed(1, NOW).until == NOW + timedelta(seconds=10)
    assert backoff.resumed(3, NOW).until == NOW + timedelta(seconds=40)
    assert backoff.resumed(50, NOW).until == NOW + timedelta(seconds=300)

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from raybus.domain import conditions, times
from raybus.domain.conditions import Condition

T0 = datetime(2026, 1, 1, tzinfo=UTC)
T1 = T0 + timedelta(hours=1)


def test_time_moves_only_with_the_status():
    first = conditions.merge(None, [Condition(type="A", status="False", reason="No")], T0)
    same = conditions.merge(first, [Condition(type="A", status="False", reason="StillNo", message="m")], T1)
    moved = conditions.merge(same, [Condition(type="A", status="True", reason="Yes")], T1)
    assert first[0]["lastTransitionTime"] == same[0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert (same[0]["reason"], same[0]["message"]) == ("StillNo", "m")
    assert moved[0]["lastTransitionTime"] == "2026-01-01T01:00:00Z"


def test_an_entry_that_says_the_same_is_kept_as_it_is():
    first = conditions.merge(None, [Condition(type="A", status="False", reason="No")], T0)
    again = conditions.merge(first, [Condition(type="A", status="False", reason="No")], T1)
    assert again[0] is first[0]


def test_order_is_that_of_first_setting():
    first = conditions.merge(None, [Condition(type=t, status="True", reason="R") for t in "BA"], T0)
    second = conditions.merge(first, [Condition(type=t, status="False", reason="R") for t in "ACB"], T1)
    assert [entry["type"] for entry in second] == ["B", "A", "C"]
    assert [entry["type"] for entry in conditions.without(second, "A")] == ["B", "C"]


@given(st.text(max_size=40) | st.none())
def test_a_written_reason_is_always_valid(reason):
    entry = conditions.merge(None, [Condition(type="A", status="False", reason=reason)], T0)[0]
    assert conditions.valid_reason(entry["reason"]) == entry["reason"]
    assert entry["reason"]


def test_odd_reasons():
    assert conditions.valid_reason("") == "Unknown"
    assert conditions.valid_reason("image pull") == "Unknown"
    assert conditions.valid_reason("ErrImagePull") == "ErrImagePull"
    assert conditions.valid_reason("X" * 1025) == "Unknown"


def test_times():
    assert (
        times.rfc3339(datetime(2026, 1, 1, 2, 0, 0, 999, tzinfo=timezone(timedelta(hours=2)))) == "2026-01-01T00:00:00Z"
    )
    assert times.parse("2026-01-01T00:00:00Z") == T0
    assert times.parse("2026-01-01T00:00:00.5Z") == T0 + timedelta(seconds=0.5)
    assert times.parse("yesterday") is None
    assert times.parse(None) is None

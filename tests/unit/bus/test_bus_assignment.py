from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from raybus.bus.assignment import LeaseView, Record, assign, evicted, moves, untaken
from raybus.bus.transport import Message

REPLICAS = st.sets(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=10)


def message(key: str, seq: int, body: bytes = b"", **headers: str) -> Message:
    return Message(f"$KV.b.{key}", body, {name.replace("_", "-"): value for name, value in headers.items()}, seq, 0.0)


def view_of(sessions: tuple[str, ...], records: dict[int, Record]) -> LeaseView:
    view = LeaseView()
    for number, name in enumerate(sessions):
        view.apply(f"session.{name}", message(f"session.{name}", number + 1))
    view.records.update(records)
    view.complete = True
    return view


@given(partitions=st.integers(1, 64), replicas=REPLICAS)
def test_all_partitions_have_an_owner_and_nobody_more_than_its_share(partitions: int, replicas: set[str]) -> None:
    owners = assign(partitions, replicas)
    assert set(owners) == set(range(partitions))
    share = math.ceil(partitions / len(replicas))
    assert all(sum(owner == replica for owner in owners.values()) <= share for replica in replicas)
    assert owners == assign(partitions, sorted(replicas, reverse=True))


def test_nobody_lives_nobody_owns() -> None:
    assert assign(8, []) == {}


def test_a_replica_that_leaves_moves_little_more_than_its_own() -> None:
    replicas = [f"replica-{number}" for number in range(8)]
    before, after = assign(128, replicas), assign(128, replicas[:-1])
    moved = sum(before[part] != after[part] for part in before)
    assert 16 <= moved <= 40


def test_what_is_free_is_taken_what_lives_is_left() -> None:
    records = {0: Record("one", 1), 1: Record("dead", 2), 2: Record(None, 3), 3: Record("other", 4)}
    view = view_of(("one", "other"), records)
    mine = {part for part, owner in assign(5, ["one", "other"]).items() if owner == "one"}
    due = moves(view, me="one", partitions=5, owned={}, busy=(), grace_over=False)
    expected = {part for part in mine if part in (0, 1, 2)}
    assert {part for part, _ in due.take} == expected
    assert dict(due.take) == {part: records[part] for part in expected}


def test_what_should_be_ours_and_is_nobodys_is_still_to_be_taken() -> None:
    records = {0: Record("one", 1), 1: Record("dead", 2), 2: Record(None, 3), 3: Record("other", 4)}
    view = view_of(("one", "other"), records)
    mine = {part for part, owner in assign(5, ["one", "other"]).items() if owner == "one"}
    assert set(untaken(view, me="one", partitions=5, owned={0})) == mine & {1, 2, 4}
    assert set(untaken(view, me="one", partitions=5, owned=mine)) == set()
    assert untaken(view_of(("other", "two"), {0: Record("other", 1)}), me="two", partitions=1, owned=()) == ()


def test_without_a_record_one_waits() -> None:
    view = view_of(("one",), {})
    assert moves(view, me="one", partitions=2, owned={}, busy=(), grace_over=False).take == ()
    assert moves(view, me="one", partitions=2, owned={}, busy=(), grace_over=True).take == ((0, None), (1, None))


def test_what_others_should_own_is_released_and_a_forgotten_record_given_back() -> None:
    view = view_of(("one", "two"), {part: Record("one", part + 1) for part in range(4)})
    theirs = [part for part, owner in assign(4, ["one", "two"]).items() if owner == "two"]
    due = moves(view, me="one", partitions=4, owned={theirs[0]: theirs[0] + 1}, busy=(), grace_over=True)
    assert due.release == (theirs[0],)
    assert due.disown == ((theirs[1], theirs[1] + 1),)


def test_what_is_being_moved_is_left_alone() -> None:
    view = view_of(("one",), {0: Record(None, 1)})
    assert moves(view, me="one", partitions=1, owned={}, busy={0}, grace_over=True) == ((), (), ())


def test_one_who_drains_gets_nothing() -> None:
    view = view_of(("one",), {})
    view.apply("session.two", message("session.two", 9, ray_draining="true"))
    assert set(view.wanted(8).values()) == {"one"}


def test_deleted_and_expired_sessions_are_gone() -> None:
    view = view_of(("one", "two", "three"), {})
    view.apply("session.one", message("session.one", 9, KV_Operation="DEL"))
    view.apply("session.two", message("session.two", 10, Nats_Marker_Reason="MaxAge"))
    assert set(view.sessions) == {"three"}


def test_an_older_record_does_not_replace_a_newer_one() -> None:
    view = view_of((), {0: Record("me", 7)})
    view.apply("part.0", message("part.0", 5, body=b'{"replica":"other"}'))
    assert view.records[0] == Record("me", 7)
    view.apply("part.0", message("part.0", 8, body=b'{"replica":"other"}'))
    assert view.records[0] == Record("other", 8)


def test_unknown_keys_are_ignored() -> None:
    view = view_of((), {})
    view.apply("part.x", message("part.x", 5, body=b'{"replica":"other"}'))
    view.apply("new.thing", message("new.thing", 6))
    assert (view.records, view.sessions) == ({}, {})


def test_one_is_evicted_by_another_owner_and_by_a_lost_record_but_only_with_a_complete_view() -> None:
    view = view_of(("me",), {0: Record("me", 1), 1: Record("other", 9)})
    assert evicted(view, "me", {0: 1, 1: 2, 2: 3}) == (1, 2)
    view.complete = False
    assert evicted(view, "me", {0: 1, 1: 2, 2: 3}) == ()


def test_a_record_that_cannot_be_read_belongs_to_nobody_who_lives() -> None:
    view = view_of(("me",), {})
    view.apply("part.0", message("part.0", 5, body=b"garbage"))
    view.apply("part.1", message("part.1", 6, body=b"[]"))
    assert [part for part, _ in moves(view, me="me", partitions=2, owned={}, busy=(), grace_over=False).take] == [0, 1]

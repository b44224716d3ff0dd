"""The store: versions, durability, history."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raybus_localkube.store import history
from raybus_localkube.store.journal import FIRST_VERSION, MemoryJournal, Row, SqliteJournal, StoreInUse
from raybus_localkube.store.store import Store


def obj(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}"}, "data": data}


def fail(error: BaseException) -> None:
    raise AssertionError(error)


async def test_what_was_committed_is_there_after_a_restart_and_versions_go_on(tmp_path: Path) -> None:
    store = Store(SqliteJournal(tmp_path / "db"), fail)
    first = store.put("things", obj("a", x="1"))
    gone = store.put("things", obj("b"))
    store.remove("things", gone, gone.load())
    await store.committed()
    store.close()

    again = Store(SqliteJournal(tmp_path / "db"), fail)

    assert again.rv == store.rv == first.rv + 2  # the deletion, too, has a version that must not come again
    assert [record.name for record in again.records("things")] == ["a"]
    record = again.get("things", "ns", "a")
    assert record is not None
    assert (record.rv, record.body) == (first.rv, first.body)
    again.close()


async def test_a_second_server_on_the_same_database_is_refused(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "db")
    journal.write([], 1)

    with pytest.raises(StoreInUse):
        SqliteJournal(tmp_path / "db")

    journal.close()
    SqliteJournal(tmp_path / "db").close()


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from raybus_localkube.store.journal import SqliteJournal
from raybus_localkube.store.store import Store
async def main():
    store = Store(SqliteJournal(Path(sys.argv[1])), print)
    for number in range(50):
        store.put("things", {"metadata": {"namespace": "ns", "name": f"n{number}", "uid": "u"}})
        await store.committed()
        print(store.rv, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


def test_a_killed_process_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "db")], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr

    store = Store(SqliteJournal(tmp_path / "db"), fail)

    assert store.rv == int(ran.stdout.split()[-1])
    assert len(store.records("things")) == 50
    store.close()


class CountingJournal(MemoryJournal):
    def __init__(self) -> None:
        self.writes: list[list[Row]] = []

    def write(self, rows: Any, rv: int) -> None:
        self.writes.append(list(rows))


async def test_writes_of_one_turn_are_one_commit() -> None:
    journal = CountingJournal()
    store = Store(journal, fail)
    for number in range(5):
        store.put("things", obj(str(number)))
    assert journal.writes == []

    await store.committed()

    assert [len(rows) for rows in journal.writes] == [5]


async def test_watchers_hear_of_a_change_only_after_its_commit() -> None:
    store = Store(MemoryJournal(), fail)
    store.put("things", obj("a"))
    assert list(store.history("things").after(0)) == []

    await store.committed()

    assert [change.type for change in store.history("things").after(0)] == ["ADDED"]


class FailingJournal(MemoryJournal):
    def write(self, rows: Any, rv: int) -> None:
        raise OSError("disk full")


async def test_a_failed_commit_is_told_to_the_writer_and_to_the_process() -> None:
    told: list[BaseException] = []
    store = Store(FailingJournal(), told.append)
    store.put("things", obj("a"))

    with pytest.raises(OSError, match="disk full"):
        await store.committed()

    assert [str(error) for error in told] == ["disk full"]


async def test_a_snapshot_undoes_what_came_later() -> None:
    store = Store(MemoryJournal(), fail)
    a, b = store.put("things", obj("a", v="1")), store.put("things", obj("b"))
    at = store.rv
    store.put("things", obj("a", v="2"))
    store.remove("things", b, b.load())
    store.put("things", obj("c"))
    await store.committed()
    store.put("things", obj("d"))  # not even committed

    found = store.snapshot("things", None, at)

    assert found is not None
    assert [(record.name, record.body) for record in found] == [("a", a.body), ("b", b.body)]


async def test_history_is_bounded_and_says_from_where_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEEP_CHANGES", 10)
    store = Store(MemoryJournal(), fail)
    for number in range(30):
        store.put("things", obj(f"{number:02}"))
    await store.committed()

    kept = store.history("things")

    changes = kept.after(kept.oldest)
    assert 10 <= len(changes) <= 13
    assert changes[-1].rv == store.rv
    assert kept.oldest == changes[0].rv - 1
    assert store.snapshot("things", None, kept.oldest - 1) is None


async def test_history_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEEP_BYTES", 10_000)
    store = Store(MemoryJournal(), fail)
    for number in range(100):
        store.put("things", obj(str(number), big="x" * 1000))
        await store.committed()

    kept = store.history("things")

    assert sum(len(change.record.body) for change in kept.after(kept.oldest)) <= 12_500


async def test_a_waiter_wakes_with_the_next_change() -> None:
    store = Store(MemoryJournal(), fail)
    waiting = asyncio.ensure_future(store.history("things").wait(5))
    await asyncio.sleep(0)
    store.put("things", obj("a"))

    assert await asyncio.wait_for(waiting, 10) is True
    assert await store.history("things").wait(0.01) is False


def test_a_fresh_store_begins_above_the_versions_that_clients_make_up(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "db")
    rv, rows = journal.load()
    assert (rv, list(rows)) == (FIRST_VERSION, [])
    journal.close()
    assert (tmp_path / "db").stat().st_size > 0

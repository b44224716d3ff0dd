"""Where objects are kept over a restart."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

Row = tuple[str, str, str, int, bytes | None]
"""resource, namespace, name, resourceVersion, body; no body means that the object is deleted."""

FIRST_VERSION = 100
"""Above what a client may name at random, so that a fresh server, too, says of version 1 that it is too old."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, rv INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (resource, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


class StoreInUse(Exception):
    """Another process has the database open for writing."""


class Journal(Protocol):
    """Durable rows. `write` is all or nothing."""

    def load(self) -> tuple[int, Iterator[Row]]: ...

    def write(self, rows: Iterable[Row], rv: int) -> None: ...

    def close(self) -> None: ...


class MemoryJournal:
    """Keeps nothing: for simulations and tests that need no restart."""

    def load(self) -> tuple[int, Iterator[Row]]:
        return 0, iter(())

    def write(self, rows: Iterable[Row], rv: int) -> None:
        pass

    def close(self) -> None:
        pass


class SqliteJournal:
    """SQLite in WAL mode. A killed process loses no answered write; a power cut may lose the last ones (synchronous=NORMAL)."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, timeout=0.5)
        try:
            # The lock is held as long as the process lives: two servers on one database would give one version twice.
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(SCHEMA)
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('rv', ?)", (FIRST_VERSION,))
        except sqlite3.OperationalError as error:
            self._db.close()
            if "locked" in str(error):
                raise StoreInUse(str(path)) from error
            raise

    def load(self) -> tuple[int, Iterator[Row]]:
        (rv,) = self._db.execute("SELECT value FROM meta WHERE key = 'rv'").fetchone()
        return rv, iter(self._db.execute("SELECT resource, namespace, name, rv, body FROM objects ORDER BY 1, 2, 3"))

    def write(self, rows: Iterable[Row], rv: int) -> None:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            for resource, namespace, name, version, body in rows:
                if body is None:
                    key = (resource, namespace, name)
                    db.execute("DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", key)
                else:
                    db.execute(
                        "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)",
                        (resource, namespace, name, version, body),
                    )
            db.execute("UPDATE meta SET value = ? WHERE key = 'rv'", (rv,))
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._db.close()

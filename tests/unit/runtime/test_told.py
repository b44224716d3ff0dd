"""What rests is said once per version of an object, for as long as the object is known."""

from __future__ import annotations

from typing import Any

from raybus.decide.tree import RootKey
from raybus.runtime.told import WORDS_MAX, Told

KEY = RootKey("RayCluster", "ns", "c1")


def obj(uid: str = "u", generation: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": "c1", "uid": uid, "generation": generation}}


def test_once_per_version() -> None:
    told = Told()
    assert told.news(KEY, obj(), "Warning", "bad")
    assert not told.news(KEY, obj(), "Warning", "bad")
    assert told.news(KEY, obj(), "Warning", "worse")
    assert not told.news(KEY, obj(), "Warning", "bad")
    assert told.news(KEY, obj(generation=2), "Warning", "bad")
    assert told.news(KEY, obj(uid="of the next one"), "Warning", "bad")


def test_what_is_forgotten_is_news_again() -> None:
    told = Told()
    other = KEY._replace(name="c2")
    for forget in (lambda: told.forget(KEY), lambda: told.drop(lambda key: key == KEY)):
        assert told.news(KEY, obj(), "bad")
        told.news(other, obj(), "bad")
        forget()
    assert told.news(KEY, obj(), "bad")
    assert not told.news(other, obj(), "bad")


def test_memory_is_bounded_and_keeps_what_was_asked_for_last() -> None:
    told = Told(objects_max=2)
    for name in ("c1", "c2", "c1", "c3"):
        told.news(KEY._replace(name=name), obj(), "bad")
    assert not told.news(KEY, obj(), "bad")
    assert told.news(KEY._replace(name="c2"), obj(), "bad")
    for number in range(WORDS_MAX):
        told.news(KEY, obj(), f"word {number}")
    assert told.news(KEY, obj(), "bad")
    assert not told.news(KEY, obj(), f"word {WORDS_MAX - 1}")

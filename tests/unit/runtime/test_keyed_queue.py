"""The keyed queue: one key never twice at once, nothing lost, fair between namespaces."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybus.decide.tree import RootKey
from raybus.runtime.queue import KeyedQueue
from support.scripted import key_of

A, B = key_of("a"), key_of("b")


def loop_time() -> float:
    return asyncio.get_running_loop().time()


async def next_of(queue: KeyedQueue) -> str:
    return (await asyncio.wait_for(queue.get(), 10)).key.name


async def nothing_due(queue: KeyedQueue, within_s: float = 0.02) -> bool:
    try:
        await asyncio.wait_for(queue.get(), within_s)
    except TimeoutError:
        return True
    return False


async def test_a_key_that_is_added_often_is_due_once() -> None:
    queue = KeyedQueue()

    for _ in range(5):
        queue.add(A, "news")

    assert len(queue) == 1
    assert await next_of(queue) == "a"
    assert await nothing_due(queue)


async def test_a_running_key_is_due_again_only_when_it_is_done() -> None:
    queue = KeyedQueue()
    queue.add(A, "first")
    await queue.get()

    queue.add(A, "second")

    assert await nothing_due(queue)
    queue.done(A)
    assert (await queue.get()).trigger == "second"


async def test_a_held_key_waits_for_ordinary_news_but_not_for_urgent_ones() -> None:
    queue = KeyedQueue()
    queue.hold(A, loop_time() + 60)
    queue.hold(B, loop_time() + 60)

    queue.add(A, "counter")
    queue.add(B, "deleted", urgent=True)

    assert await next_of(queue) == "b"
    assert await nothing_due(queue)


async def test_what_happened_during_a_hold_is_due_at_its_end() -> None:
    queue = KeyedQueue()
    queue.hold(A, loop_time() + 0.05)
    began = loop_time()
    queue.add(A, "counter")

    due = await asyncio.wait_for(queue.get(), 10)

    assert loop_time() - began >= 0.049
    assert due.trigger == "counter"


async def test_urgent_news_of_a_running_key_do_not_wait_for_the_hold_that_its_pass_set() -> None:
    queue = KeyedQueue()
    queue.add(A, "first")
    await queue.get()
    queue.add(A, "deleted", urgent=True)
    queue.hold(A, loop_time() + 60)

    queue.done(A)

    assert await next_of(queue) == "a"


async def test_a_timer_makes_a_key_due_and_the_earliest_of_several_counts() -> None:
    queue = KeyedQueue()
    queue.add_at(A, loop_time() + 60, "late")
    queue.add_at(A, loop_time() + 0.02, "soon")
    queue.add_at(A, loop_time() + 30, "later")

    due = await asyncio.wait_for(queue.get(), 10)

    assert due.trigger == "soon"


async def test_a_timer_rings_during_a_hold() -> None:
    queue = KeyedQueue()
    queue.hold(A, loop_time() + 60)
    queue.add_at(A, loop_time() + 0.02, "deadline")

    assert await next_of(queue) == "a"


async def test_a_timer_that_was_set_before_a_pass_does_not_ring_after_it() -> None:
    queue = KeyedQueue()
    queue.add_at(A, loop_time() + 0.05, "old deadline")
    queue.add(A, "news")
    await queue.get()

    queue.done(A)

    assert await nothing_due(queue, 0.1)


async def test_a_timer_set_during_a_pass_rings_after_it() -> None:
    queue = KeyedQueue()
    queue.add(A, "news")
    await queue.get()
    queue.add_at(A, loop_time() + 0.02, "deadline")
    assert await nothing_due(queue, 0.05)

    queue.done(A)

    assert (await asyncio.wait_for(queue.get(), 10)).trigger == "deadline"


async def test_a_paused_queue_hands_out_nothing_until_it_is_resumed() -> None:
    queue = KeyedQueue()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.pause()
    queue.add(A, "news")
    await asyncio.sleep(0.01)
    assert not waiting.done()

    queue.resume()

    assert (await asyncio.wait_for(waiting, 10)).key == A


async def test_dropped_keys_are_not_due_and_have_no_timer() -> None:
    queue = KeyedQueue()
    queue.add(A, "news")
    queue.add_at(B, loop_time() + 0.01, "deadline")

    queue.drop(lambda _key: True)

    assert len(queue) == 0
    assert await nothing_due(queue, 0.05)


async def test_a_key_dropped_while_it_runs_is_not_due_again_but_stays_exclusive() -> None:
    queue = KeyedQueue()
    queue.add(A, "news")
    await queue.get()
    queue.add(A, "before the drop")
    queue.drop(lambda key: key == A)
    queue.add(A, "after the drop")

    assert await nothing_due(queue)
    queue.done(A)
    assert (await queue.get()).trigger == "after the drop"
    queue.drop(lambda key: key == A)
    queue.done(A)
    assert await nothing_due(queue)


async def test_waiting_for_running_keys_ends_with_them_or_with_the_limit() -> None:
    queue = KeyedQueue()
    queue.add(A, "news")
    await queue.get()

    assert not await queue.wait_done(lambda key: key == A, 0.01)
    assert await queue.wait_done(lambda key: key == B, 0.01)
    waiting = asyncio.create_task(queue.wait_done(lambda key: key == A, 1))
    await asyncio.sleep(0)
    queue.done(A)
    assert await waiting


async def test_namespaces_take_turns() -> None:
    queue = KeyedQueue()
    for number in range(100):
        queue.add(key_of(f"big-{number}", "noisy"), "news")
    queue.add(key_of("one", "quiet"), "news")
    queue.add(key_of("two", "quiet"), "news")

    first = [(await queue.get()).key.namespace for _ in range(4)]

    assert first == ["noisy", "quiet", "noisy", "quiet"]


async def test_a_cancelled_waiter_does_not_take_the_key_along() -> None:
    queue = KeyedQueue()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(A, "news")
    first.cancel()

    assert (await asyncio.wait_for(second, 10)).key == A
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_more_due_keys_than_the_limit_are_told_not_lost() -> None:
    queue = KeyedQueue(limit=2)
    for name in ("a", "b", "c"):
        queue.add(key_of(name), "news")

    assert queue.overloaded
    assert len(queue) == 3


class Checked:
    """Workers over a queue that note every breach: a key twice at once, or a change that no later pass saw."""

    def __init__(self, queue: KeyedQueue) -> None:
        self.queue = queue
        self.running: set[RootKey] = set()
        self.changes: Counter[RootKey] = Counter()
        self.seen: dict[RootKey, int] = {}
        self.breaches: list[str] = []

    def change(self, key: RootKey, *, urgent: bool) -> None:
        self.changes[key] += 1
        self.queue.add(key, "news", urgent=urgent)

    async def work(self, chance: random.Random) -> None:
        while True:
            key = (await self.queue.get()).key
            if key in self.running:
                self.breaches.append(f"{key} twice at once")
            self.running.add(key)
            seen = self.changes[key]
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            self.seen[key] = seen
            if chance.random() < 0.3:
                self.queue.hold(key, loop_time() + 0.002)
            if chance.random() < 0.2:
                self.queue.add_at(key, loop_time() + 0.001, "deadline")
            self.running.discard(key)
            self.queue.done(key)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 80), workers=st.integers(1, 5))
def test_whatever_happens_no_key_runs_twice_at_once_and_each_change_is_seen(
    seed: int, steps: int, workers: int
) -> None:
    async def play() -> Checked:
        chance = random.Random(seed)
        checked = Checked(KeyedQueue())
        tasks = [asyncio.create_task(checked.work(chance)) for _ in range(workers)]
        keys = [key_of(f"k{number}", f"ns{number % 3}") for number in range(6)]
        for _ in range(steps):
            checked.change(chance.choice(keys), urgent=chance.random() < 0.3)
            if chance.random() < 0.05:
                checked.queue.pause()
                checked.queue.resume()
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
        for _ in range(200):
            if all(checked.seen.get(key) == count for key, count in checked.changes.items()):
                break
            await asyncio.sleep(0.002)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return checked

    checked = asyncio.run(play())

    assert checked.breaches == []
    assert checked.seen == dict(checked.changes)

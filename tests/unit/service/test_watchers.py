"""Test watchers of events: each gets every event once and in order, and all share one read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Report
from kernel_backend.model.resources import Share
from kernel_backend.model.stream import Message
from kernel_backend.service.notifier import Notifier
from kernel_backend.service.views import watchers as feeding
from kernel_backend.service.views.watchers import EncodedMessage, WatcherFeed
from kernel_backend.store.base import NewExperiment, StoreUnavailable
from kernel_backend.store.sql import SqlStore
from tests.support.empty_database import empty_database

GANG = (Share(node="here", kind="cpu", address="127.0.0.1", slots=(0,)),)


class Counting(SqlStore):
    """Store that records how its message stream was read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read: list[tuple[int, int | None]] = []
        self.broken = False

    def messages(self, after: int, experiment: int | None = None, limit: int = 1000) -> list[Message]:
        self.read.append((after, experiment))
        if self.broken:
            raise StoreUnavailable("the disk is gone")
        return super().messages(after, experiment, limit)

    def tell(self, experiment: int, count: int = 1) -> None:
        key = AttemptId(experiment, 1, 1)
        first = self.attempt(key).id and len(self.reports(experiment, 1)) + 1
        told = [
            Report(number=number, at=1.0, kind="training", step=number, epoch=1.0, metrics={"loss": 1.0})
            for number in range(first, first + count)
        ]
        self.accept(key, told, at=1.0)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    monkeypatch.setattr(feeding, "PAGE", 10)
    monkeypatch.setattr(feeding, "RECENT", 20)
    store = Counting(empty_database(tmp_path / "daylight.db"))
    for _ in range(2):
        draft = NewExperiment(owner="a", group="g", snapshot="0", config=Config(), params={}, python="python", cwd="/")
        number = store.add_experiment(draft, at=0.0)[0].number
        store.add_attempt(number, 1, GANG, None, "", at=0.0)
    yield store
    store.close()


Watch = Callable[[WatcherFeed, Notifier], Awaitable[None]]


def watching(store: Counting, watch: Watch) -> None:
    async def run() -> None:
        bus = Notifier()
        async with asyncio.timeout(60):
            await watch(WatcherFeed(store, bus), bus)

    asyncio.run(run())


async def some(frames: AsyncIterator[EncodedMessage], upto: int) -> list[int]:
    """Return the sequence numbers that arrive, up to one of them."""
    seqs: list[int] = []
    while not seqs or seqs[-1] < upto:
        seqs.append((await anext(frames)).seq)
    return seqs


def all_of(store: Counting, experiment: int | None) -> list[int]:
    return [message.seq for message in store.messages(0, experiment, 100_000)]


def test_a_watcher_gets_what_was_and_what_comes_each_once_and_in_order(store: Counting):
    store.tell(1, 35)
    store.tell(2, 7)

    async def watch(feed: WatcherFeed, bus: Notifier) -> None:
        async with aclosing(feed.frames(0)) as everything, aclosing(feed.frames(0, 1)) as one:
            seen = await some(everything, store.last_seq())
            seen_of_one = await some(one, all_of(store, 1)[-1])
            for _ in range(30):
                store.tell(2, 3)
                store.tell(1, 2)
                bus.notify()
                seen += await some(everything, store.last_seq())
                seen_of_one += await some(one, store.last_seq())
            assert seen == all_of(store, None)
            assert seen_of_one == all_of(store, 1)

    watching(store, watch)


def test_one_who_reads_slowly_misses_nothing_of_what_is_kept_no_more(store: Counting):
    async def watch(feed: WatcherFeed, bus: Notifier) -> None:
        async with aclosing(feed.frames(0)) as slow, aclosing(feed.frames(0)) as quick:
            seen = [(await anext(slow)).seq]
            for _ in range(10):
                store.tell(1, 25)
                bus.notify()
                await some(quick, store.last_seq())
            assert len(feed._recent) <= 2 * feeding.RECENT
            assert seen + await some(slow, store.last_seq()) == all_of(store, None)

    watching(store, watch)


def test_watchers_of_an_ended_experiment_cost_nothing_while_another_reports(store: Counting):
    async def watch(feed: WatcherFeed, bus: Notifier) -> None:
        last = store.last_seq()
        quiet = [feed.frames(last, 1) for _ in range(50)]
        waiting = [asyncio.create_task(anext(frames)) for frames in quiet]
        async with aclosing(feed.frames(last, 2)) as busy:
            store.tell(2)
            bus.notify()
            await some(busy, store.last_seq())
            store.read.clear()
            for _ in range(5):
                store.tell(2)
                bus.notify()
                await some(busy, store.last_seq())
        assert len(store.read) < 50  # a page and the look behind it, for each of five reports: none for the fifty
        assert not any(task.done() for task in waiting)
        store.tell(1)
        bus.notify()
        frames = await asyncio.gather(*waiting)
        assert {frame.experiment for frame in frames} == {1}
        assert len({id(frame.text) for frame in frames}) == 1
        for each in quiet:
            await each.aclose()

    watching(store, watch)


def test_who_replay_together_read_together(store: Counting):
    store.tell(1, 95)

    async def watch(feed: WatcherFeed, bus: Notifier) -> None:
        last = store.last_seq()
        replays = [feed.frames(0, 1) for _ in range(40)]
        seen = await asyncio.gather(*(some(frames, last) for frames in replays))
        assert all(each == seen[0] for each in seen)
        again = [page for page, times in Counter(store.read).items() if page[1] == 1 and times > 1]
        assert len(again) <= 1  # the last page, which is not full: there may be more of it
        for each in replays:
            await each.aclose()

    watching(store, watch)


def test_a_store_that_fails_is_told_to_all_and_the_next_watcher_begins_anew(store: Counting):
    async def watch(feed: WatcherFeed, bus: Notifier) -> None:
        last = store.last_seq()
        waiting = [asyncio.create_task(anext(feed.frames(last, number))) for number in (1, 2)]
        await asyncio.sleep(0)
        store.broken = True
        bus.notify()
        for task in waiting:
            with pytest.raises(StoreUnavailable):
                await task
        store.broken = False
        store.tell(1)
        assert (await anext(feed.frames(last, 1))).experiment == 1

    watching(store, watch)

"""Measure what watchers cost the service: many pages on an ended experiment, many replays of a long one.

    python benchmarks/watchers.py [--pages 100] [--replays 500] [--messages 20000]

Expected: pages on an ended experiment cost nothing while another one reports, and replays from the beginning share what
is read from the store. This is compared with independent watchers, each of which reads the store at every notification
of a change. Each measurement is a process of its own: its CPU time over `--seconds` of ten reports a second, and its
peak memory.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.reports_per_second import reports  # noqa: E402
from kernel_backend.model.experiment import Config  # noqa: E402
from kernel_backend.model.ids import AttemptId  # noqa: E402
from kernel_backend.model.resources import Share  # noqa: E402
from kernel_backend.service.notifier import Notifier, wait_for  # noqa: E402
from kernel_backend.service.views.watchers import WatcherFeed  # noqa: E402
from kernel_backend.store.base import NewExperiment  # noqa: E402
from kernel_backend.store.sql import SqlStore  # noqa: E402

RATE = 10  # reports a second
GANG = (Share(node="here", kind="cpu", address="127.0.0.1", slots=(0,)),)


def filled(path: Path, messages: int) -> SqlStore:
    """Create two experiments, of which the first has many messages and gets no more."""
    store = SqlStore(path)
    for _ in range(2):
        draft = NewExperiment(owner="a", group="g", snapshot="0", config=Config(), params={}, python="python", cwd="/")
        number = store.add_experiment(draft, at=0.0)[0].number
        store.add_attempt(number, 1, GANG, None, "", at=0.0)
    store.accept(AttemptId(1, 1, 1), reports(messages), at=1.0)
    return store


async def alone(store: SqlStore, bus: Notifier, after: int, experiment: int) -> AsyncIterator[str]:
    """Watch an experiment by reading the store at each change, without sharing what is read."""
    while True:
        event = bus.listen()
        messages = await asyncio.to_thread(store.messages, after, experiment)
        for message in messages:
            after = message.seq
            yield message.model_dump_json()
        if not messages:
            await wait_for(event, 20.0)


async def shared(feed: WatcherFeed, after: int, experiment: int) -> AsyncIterator[str]:
    async for frame in feed.frames(after, experiment):
        yield frame.text


async def quiet(store: SqlStore, how: str, pages: int, seconds: float) -> float:
    """Return the share of a core that pages on the ended experiment cost while the other one reports."""
    bus, last = Notifier(), store.last_seq()
    feed = WatcherFeed(store, bus)
    watchers = [alone(store, bus, last, 1) if how == "alone" else shared(feed, last, 1) for _ in range(pages)]
    waiting = [asyncio.ensure_future(anext(each)) for each in watchers]
    await asyncio.sleep(1)
    told, began, cpu = reports(int(seconds * RATE)), time.monotonic(), time.process_time()
    for count, report in enumerate(told, 1):
        await asyncio.to_thread(store.accept, AttemptId(2, 1, 1), [report], 1.0)
        bus.notify()
        await asyncio.sleep(max(0.0, began + count / RATE - time.monotonic()))
    share = (time.process_time() - cpu) / (time.monotonic() - began)
    for task in waiting:
        task.cancel()
    return share


async def replayed(store: SqlStore, how: str, replays: int) -> None:
    """Run watchers that read from the beginning, and that pause a moment after every 50 messages."""
    bus, last = Notifier(), store.last_seq()
    feed = WatcherFeed(store, bus)

    async def replay() -> None:
        watcher, read = alone(store, bus, 0, 1) if how == "alone" else shared(feed, 0, 1), 0
        async for _ in watcher:
            read += 1
            if read % 50 == 0:
                await asyncio.sleep(0.01)
            if read == 3000 or read >= last - 10:
                return

    await asyncio.gather(*(replay() for _ in range(replays)))


def measure(what: str, how: str, options: argparse.Namespace) -> None:
    store = SqlStore(options.store)
    if what == "quiet":
        print(asyncio.run(quiet(store, how, options.pages, options.seconds)))
        return
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    asyncio.run(replayed(store, how, options.replays))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{grown / 1024} {time.monotonic() - began}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=100)
    parser.add_argument("--replays", type=int, default=500)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure, options)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "daylight.db"
        filled(path, options.messages).close()
        found: dict[tuple[str, str], list[float]] = {}
        for what in ("quiet", "replay"):
            for how in ("alone", "shared"):
                command = [sys.executable, __file__, *sys.argv[1:], "--measure", what, how, "--store", str(path)]
                answer = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
                found[what, how] = [float(each) for each in answer.stdout.split()]
                if what == "quiet":
                    filled_anew(path, options.messages)
    print(f"{options.pages} pages on an ended experiment, {RATE} reports a second of another:")
    for how in ("alone", "shared"):
        print(f"  {how:<8}{found['quiet', how][0]:6.1%} of a core")
    print(f"{options.replays} watchers that replay 3,000 messages from the beginning:")
    for how in ("alone", "shared"):
        mib, seconds = found["replay", how]
        print(f"  {how:<8}{mib:6.0f} MiB more at the peak, {seconds:.1f} s")


def filled_anew(path: Path, messages: int) -> None:
    """Replace the store by a new one, without what was reported during a measurement."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    filled(path, messages).close()


if __name__ == "__main__":
    main()

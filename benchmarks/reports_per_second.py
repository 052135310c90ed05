"""Measure the reports per second that the store accepts, against plain sqlite3 in the same run.

Expected: accepting reports (without duplicates, only the first report of a step, with the trial's progress, in one
transaction per batch) takes at most a few times as long as bare `executemany` into one table, and is far faster than
one commit per report.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kernel_backend.model.experiment import Config
from kernel_backend.model.reports import Report
from kernel_backend.model.resources import Share
from kernel_backend.store.base import NewExperiment
from kernel_backend.store.sql import SqlStore

TABLE = """CREATE TABLE reports (seq INTEGER PRIMARY KEY, experiment, trial, attempt, at, kind, step, epoch,
           metrics TEXT, UNIQUE (experiment, trial, kind, step))"""
INSERT = "INSERT INTO reports VALUES (?, 1, 1, 1, ?, ?, ?, ?, ?)"


def reports(count: int) -> list[Report]:
    return [
        Report(number=n, at=float(n), kind="training", step=n, epoch=n / 100, metrics={"loss": 1 / n, "lr": 1e-3})
        for n in range(1, count + 1)
    ]


def store(folder: Path, count: int, batch: int) -> Callable[[], None]:
    home = SqlStore(folder / "store.db")
    draft = NewExperiment(owner="a", group="g", snapshot="0", config=Config(), params={}, python="python", cwd="/")
    number = home.add_experiment(draft, at=0.0)[0].number
    gang = (Share(node="here", kind="cpu", address="127.0.0.1", slots=(0,)),)
    key = home.add_attempt(number, 1, gang, None, "", at=0.0).id
    told = reports(count)

    def run() -> None:
        for first in range(0, count, batch):
            home.accept(key, told[first : first + batch], at=1.0)

    return run


def plain(folder: Path, count: int, batch: int) -> Callable[[], None]:
    db = sqlite3.connect(folder / "plain.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute(TABLE)
    told = reports(count)

    def run() -> None:
        for first in range(0, count, batch):
            rows = [
                (r.number, r.at, r.kind, r.step, r.epoch, json.dumps(r.metrics)) for r in told[first : first + batch]
            ]
            db.execute("BEGIN IMMEDIATE")
            db.executemany(INSERT, rows)
            db.execute("COMMIT")

    return run


def rate(kind: Callable[[Path, int, int], Callable[[], None]], count: int, batch: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        run = kind(Path(folder), count, batch)
        start = time.perf_counter()
        run()
        return count / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=50_000, help="how many a run (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the best counts (default: %(default)s)")
    args = parser.parse_args()

    def best(kind: Callable[[Path, int, int], Callable[[], None]], count: int, batch: int) -> float:
        return max(rate(kind, count, batch) for _ in range(args.repeats))

    single = best(plain, args.reports // 10, 1)
    print(f"plain sqlite3, a commit a report      {single:10,.0f} reports/s")
    for batch in (1000, 100):
        ours, bare = best(store, args.reports, batch), best(plain, args.reports, batch)
        print(f"plain sqlite3, executemany of {batch:5}   {bare:10,.0f} reports/s")
        print(
            f"store.accept, batches of {batch:5}        {ours:10,.0f} reports/s   "
            f"{ours / bare:.2f} of executemany, {ours / single:.1f} times a commit a report"
        )


if __name__ == "__main__":
    main()

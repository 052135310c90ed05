"""Measure the time from a request within a guarantee to its first step, when others have borrowed all slots.

    python benchmarks/reclaim.py [--runs 5] [--width 16]

Two CPU slots, both used by a training in excess of its own guarantee (the borrower), with steps of 50 ms; `--width`
sets the size of its model (12 numbers per unit of width, for each of which AdamW keeps two more). The phases end as
follows. `asked`: the borrower was requested to exit; `saved`: its last checkpoint is committed; `gone`: its gang has
ended and its slots are free; `placed`: the attempt of the new request exists; `first step`: it has taken one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ["DAYLIGHT_SLOTS"] = "2"

from kernel_backend.model.reports import Committed, Report, SpoolRecord
from kernel_backend.scheduler.rules import Rules
from tests.support.shared_cluster import BORROWS, OWNS, Lent
from tests.support.spools import read_after

PARTS = ("asked", "saved", "gone", "placed", "first step")


def spool(lent: Lent, number: int) -> list[SpoolRecord]:
    return list(read_after(lent.home / "attempts" / f"{number}.1-1" / "spool.jsonl", 0))


def taken_back(lent: Lent, width: int) -> list[float]:
    """Return the seconds of each phase in `PARTS`, from the request to its first step."""
    borrower = lent.asks(BORROWS, epochs=1000, pause=0.05, width=width, checkpoint_every={"steps": 8})
    lent.checkpointed(borrower)
    begun = time.time()
    owner = lent.asks(OWNS, epochs=1)
    lent.reached(owner, 1)
    store = lent.served.service._store
    (ended,) = [each for each in store.attempts(borrower, 1) if each.number == 1]
    said = store.messages(0, borrower, 100_000)
    asked = next(each.at for each in said if each.type == "trial" and each.data["state"] == "releasing")
    saved = max(each.at for each in spool(lent, borrower) if isinstance(each, Committed))
    placed = store.attempts(owner, 1)[0].created_at
    first = next(each.at for each in spool(lent, owner) if isinstance(each, Report))
    lent.ended(owner)
    lent.served.client().stop(borrower)
    lent.ended(borrower)
    times = [begun, asked, saved, ended.ended_at or 0.0, placed, first]
    return [after - before for before, after in pairwise(times)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--width", type=int, default=16)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        lent = Lent(Path(home), Rules(min_run=0.0))
        try:
            runs = [taken_back(lent, given.width) for _ in range(given.runs)]
        finally:
            lent.close()
    print(f"load {os.getloadavg()[0]:.1f}")
    for name, seconds in zip((*PARTS, "in all"), [*zip(*runs, strict=True), [sum(run) for run in runs]], strict=True):
        print(f"{name:10} {median(seconds):6.2f} s  ({min(seconds):.2f} to {max(seconds):.2f})")


if __name__ == "__main__":
    main()

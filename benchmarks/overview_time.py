"""Measure the time to list experiments with a large search among them, and to show that search.

    python benchmarks/overview_time.py [--trials 5000]

A store in SQLite with 49 experiments of one trial each and a paused search of many trials; each trial has had two
attempts, changed its state six times and has a note. Printed is the CPU time from the request to the JSON of the
answer, the median of `--rounds`: for the list of all 50, for the search alone, and for the list without the search.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sqlalchemy import insert, update  # noqa: E402

from kernel_backend.model.cluster.people import Person  # noqa: E402
from kernel_backend.model.experiment import Config, Experiment  # noqa: E402
from kernel_backend.model.resources import Share  # noqa: E402
from kernel_backend.model.search.records import Search  # noqa: E402
from kernel_backend.model.search.space import Space  # noqa: E402
from kernel_backend.model.states import AttemptState, ExperimentState, Hold, Outcome, TrialState  # noqa: E402
from kernel_backend.model.trial import Attempt, Best, Trial  # noqa: E402
from kernel_backend.spec.assignments import parse_line  # noqa: E402
from kernel_backend.store import tables  # noqa: E402
from kernel_backend.store.sql import SqlStore  # noqa: E402
from tests.api.served import Served, StillEngine, archive  # noqa: E402

ADA = Person(name="ada")
SNAPSHOT, ZIP = archive()
SETTLE_S = 3.0  # a service that starts looks at everything once
MOVES = 6  # of each trial, told with the whole record
GANG = (Share(node="here", kind="cpu", address="127.0.0.1", slots=(0,)),)


def experiment(number: int, search: Search | None, space: Space) -> Experiment:
    return Experiment(
        number=number,
        name=f"run {number}",
        state=ExperimentState.PAUSED if search else ExperimentState.COMPLETED,
        owner="ada",
        group="ada",
        snapshot=SNAPSHOT,
        config=Config(search=search, epochs=16, threads=1),
        params={},
        space=space,
        python="python",
        cwd="/",
        notebook=None,
        created_at=1.0,
        ended_at=None if search else 2.0,
    )


def trial(number: int, index: int, ended: bool, draw: random.Random) -> Trial:
    value = draw.random()
    return Trial(
        experiment=number,
        index=index,
        state=TrialState.COMPLETED if ended else TrialState.PAUSED,
        holds=frozenset() if ended else frozenset({Hold.SEARCH}),
        params={"lr": draw.random(), "width": draw.choice([32, 64]), "drop": draw.random(), "act": "relu"},
        attempt=2,
        queued_at=float(index),
        step=400,
        epoch=4.0,
        total_steps=1600,
        checkpoint="400-2",
        metrics={"loss": value, "accuracy": 1 - value, "error": value},
        best=Best(value=value, step=400, epoch=4.0),
        training={"loss": value, "lr": 1e-3},
        ended_at=2.0 if ended else None,
    )


def attempt(number: int, index: int, nth: int) -> Attempt:
    return Attempt(
        experiment=number,
        trial=index,
        number=nth,
        state=AttemptState.ENDED,
        placement=GANG,
        created_at=1.0,
        ended_at=2.0,
        outcome=Outcome.RELEASED,
        backend="torch",
        backend_reason="chosen",
        guarantee="the same bits on this kind of CPU, with this torch and as many threads",
    )


def fill(store: SqlStore, trials: int) -> int:
    """Fill an empty store; return the number of the search, which is the newest experiment."""
    draw, space = random.Random(0), parse_line(["lr=0..1", "width=32,64", "drop=0..1", "act=relu,gelu"]).space
    number = 50
    made = [experiment(each, None, Space()) for each in range(1, number)]
    made.append(experiment(number, Search(method="asha", trials=trials), space))
    of = [(each, 1) for each in range(1, number)] + [(number, index) for index in range(1, trials + 1)]
    all_trials = [trial(each, index, each < number or draw.random() < 0.1, draw) for each, index in of]
    attempts = [attempt(each, index, nth) for each, index in of for nth in (1, 2)]
    said: list[dict[str, object]] = []
    for one in all_trials:
        about = {"at": 1.0, "experiment": one.experiment, "trial": one.index}
        text = f"attempt {one.index} was preempted: #{draw.randrange(9)} needs its slots"
        said += [{**about, "type": "trial", "data": one.to_json()}] * MOVES
        said.append({**about, "type": "note", "data": {"text": text, "level": "info", "attempt": 1}})
    events = [{**each, "seq": seq} for seq, each in enumerate(said, 1)]
    with store._writing() as tx:
        tx.db.execute(insert(tables.experiments), [tables.to_row(each) for each in made])
        tx.db.execute(insert(tables.trials), [tables.to_row(each) for each in all_trials])
        tx.db.execute(insert(tables.attempts), [tables.to_row(each) | {"token_digest": ""} for each in attempts])
        tx.db.execute(insert(tables.events), events)
        tx.db.execute(update(tables.sequence).values(value=len(events)))
    return number


def measure(served: Served, number: int, rounds: int) -> None:
    async def timed(what: str, search: str | None) -> float:
        times = []
        for _ in range(rounds):
            began = time.process_time()
            if what == "show":
                found = [await served.service.overview(ADA, number)]
            else:
                found = await served.service.overviews(ADA, search, None, 50)
            json.dumps([each.to_json() for each in found])
            times.append(1000 * (time.process_time() - began))
        return median(times[1:])

    small = served.run(timed("list", "completed"))
    print(f"a list of 49 experiments           {small:6.1f} ms")
    print(f"the same with the search in it     {served.run(timed('list', None)):6.1f} ms")
    print(f"the search by itself               {served.run(timed('show', None)):6.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore(Path(folder) / "daylight.db")
        number = fill(store, options.trials)
        store.close()
        served = Served(Path(folder), StillEngine())
        served.run(served.service.submissions.put_snapshot(ADA, SNAPSHOT, ZIP))
        time.sleep(SETTLE_S)
        try:
            measure(served, number, options.rounds)
        finally:
            served.stop()


if __name__ == "__main__":
    main()

"""Fill the stores of MLflow and TensorBoard with many runs, in an environment of theirs, and name their versions.

    python tracked_runs.py mlflow FOLDER RUNS REPORTS      # a database in SQLite
    python tracked_runs.py tensorboard FOLDER RUNS REPORTS # a file of events for each run
    python tracked_runs.py versions

It imports nothing of Daylight. Values are those of `benchmarks/support/full_store.py`: five metrics a report.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

METRICS = ("loss", "accuracy", "f1", "precision", "recall")
START_MS = 1_750_000_000_000
PEERS = ("mlflow", "tensorboard")


def values(run: int, unit: int) -> dict[str, float]:
    """Return the five metrics that a run reports at the end of a unit."""
    noise = random.Random(1000 * run + unit).random()
    value = 0.05 + 0.9 * ((run * 2654435761) % 1000 / 1000) * unit**-0.5 + 0.01 * noise
    return dict(zip(METRICS, (value, 1 - value, 1 - value * 1.1, 1 - value / 2, value**2), strict=True))


def fill_mlflow(folder: Path, runs: int, reports: int) -> None:
    """Write runs to a new database of MLflow, in the tables that its own store has made."""
    from mlflow.store.tracking.dbmodels import models
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy import insert

    store = SqlAlchemyStore(f"sqlite:///{folder / 'mlflow.db'}", str(folder / "artifacts"))
    experiment = store.create_experiment("digits")
    with store.ManagedSessionMaker() as session:
        for model, rows in _rows(models, int(experiment), folder, runs, reports):
            session.execute(insert(model), rows)


def _rows(models: Any, experiment: int, folder: Path, runs: int, reports: int) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the rows of the tables for one run after the other."""
    params = {"lr": "0.01", "width": "64", "drop": "0.1", "act": "relu"}
    for run in range(1, runs + 1):
        mine = {"run_uuid": _id(run)}
        yield models.SqlRun, [_run(run, experiment, folder)]
        yield models.SqlTag, [{**mine, "key": "mlflow.runName", "value": f"run-{run}"}]
        yield models.SqlParam, [{**mine, "key": key, "value": value} for key, value in params.items()]
        points = [point for unit in range(1, reports + 1) for point in _points(run, unit)]
        yield models.SqlMetric, points
        yield models.SqlLatestMetric, points[-len(METRICS) :]


def _id(run: int) -> str:
    return f"{run:032x}"


def _run(run: int, experiment: int, folder: Path) -> dict[str, Any]:
    return {
        "run_uuid": _id(run),
        "name": f"run-{run}",
        "source_type": "LOCAL",
        "source_name": "train.py",
        "entry_point_name": "",
        "user_id": "ada",
        "status": "FINISHED",
        "start_time": START_MS + 1000 * run,
        "end_time": START_MS + 1000 * run + 300_000,
        "source_version": "",
        "lifecycle_stage": "active",
        "artifact_uri": str(folder / "artifacts" / _id(run)),
        "experiment_id": experiment,
    }


def _points(run: int, unit: int) -> Iterator[dict[str, Any]]:
    at = {"run_uuid": _id(run), "timestamp": START_MS + 1000 * (run + unit), "step": 100 * unit, "is_nan": False}
    return ({**at, "key": key, "value": value} for key, value in values(run, unit).items())


def fill_tensorboard(folder: Path, runs: int, reports: int) -> None:
    """Write a file of events for each run, as `SummaryWriter` would."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    for run in range(1, runs + 1):
        place = folder / "runs" / f"run-{run}"
        place.mkdir(parents=True)
        with (place / "events.out.tfevents.1750000000.here").open("wb") as file:
            writer, at = RecordWriter(file), START_MS / 1000 + run
            writer.write(Event(wall_time=at, file_version="brain.Event:2").SerializeToString())
            for unit in range(1, reports + 1):
                scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values(run, unit).items()]
                event = Event(wall_time=at + unit, step=100 * unit, summary=Summary(value=scalars))
                writer.write(event.SerializeToString())


def main(argv: list[str]) -> None:
    match argv:
        case ["mlflow", folder, runs, reports]:
            fill_mlflow(Path(folder), int(runs), int(reports))
        case ["tensorboard", folder, runs, reports]:
            fill_tensorboard(Path(folder), int(runs), int(reports))
        case ["versions"]:
            found = [name for name in PEERS if importlib.util.find_spec(name) is not None]
            print(json.dumps({name: importlib.metadata.version(name) for name in found}))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

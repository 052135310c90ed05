"""Add the best value of each trial, with its step and epoch."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

EXPERIMENTS = sa.table("experiments", sa.column("number"), sa.column("config"))
TRIALS = sa.table("trials", sa.column("experiment"), sa.column("index"), sa.column("best"))
REPORTS = sa.table(
    "reports", *(sa.column(name) for name in ("experiment", "trial", "kind", "step", "epoch", "metrics"))
)
PAGE = 1000


def upgrade() -> None:
    op.add_column("trials", sa.Column("best", sa.Text))
    db, here = op.get_bind(), TRIALS.c
    this = (here.experiment == sa.bindparam("number"), here.index == sa.bindparam("trial"))
    told = [
        {"number": number, "trial": trial, "best": json.dumps(best)}
        for number, config in db.execute(sa.select(EXPERIMENTS)).all()
        for trial, best in _bests(db, number, json.loads(config).get("metric", {})).items()
    ]
    if told:
        db.execute(TRIALS.update().where(*this).values(best=sa.bindparam("best")), told)


def _bests(db: sa.Connection, number: int, metric: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the best value of each trial that has one, by index; ties go to the earliest step."""
    name, sign = metric.get("name", "loss"), -1 if metric.get("mode") == "max" else 1
    bests: dict[int, dict[str, Any]] = {}
    for trial, step, epoch, metrics in _validations(db, number):
        value = json.loads(metrics).get(name)
        if value is None or not math.isfinite(value):
            continue
        if trial not in bests or sign * value < sign * bests[trial]["value"]:
            bests[trial] = {"value": value, "step": step, "epoch": epoch}
    return bests


def _validations(db: sa.Connection, number: int) -> Iterator[Any]:
    here = REPORTS.c
    query = sa.select(here.trial, here.step, here.epoch, here.metrics).order_by(here.step)
    mine = query.where(here.experiment == number, here.kind == "validation")
    yield from db.execute(mine.execution_options(yield_per=PAGE))

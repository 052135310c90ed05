"""Add the history of each search as computed from its log, and indexes for a search's best and failed trials."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

TRIALS = sa.table(
    "trials", sa.column("experiment"), sa.column("index"), sa.column("best"), sa.column("best_value", sa.Double)
)
UNUSUAL = sa.text("(failure IS NOT NULL OR holds NOT IN ('[]', '[\"search\"]'))")
PAGE = 10_000


def upgrade() -> None:
    op.create_table(
        "search_histories",
        sa.Column("experiment", sa.Integer, sa.ForeignKey("experiments.number"), primary_key=True, autoincrement=False),
        sa.Column("packed", sa.LargeBinary, nullable=False),
    )
    op.add_column("trials", sa.Column("best_value", sa.Double))
    _fill()
    op.create_index("trials_by_best", "trials", ["experiment", "best_value"])
    op.create_index("unusual_trials", "trials", ["experiment", "index"], sqlite_where=UNUSUAL, postgresql_where=UNUSUAL)


def _fill() -> None:
    """Write the best value of each trial that has one into its own column."""
    db, here = op.get_bind(), TRIALS.c
    key = sa.tuple_(here.experiment, here.index)
    this = (here.experiment == sa.bindparam("number"), here.index == sa.bindparam("trial"))
    update = TRIALS.update().where(*this).values(best_value=sa.bindparam("value"))
    after = (0, 0)
    while True:
        query = sa.select(here.experiment, here.index, here.best).where(here.best.is_not(None), key > after)
        page = db.execute(query.order_by(here.experiment, here.index).limit(PAGE)).all()
        if not page:
            return
        values = [{"number": row[0], "trial": row[1], "value": json.loads(row[2])["value"]} for row in page]
        db.execute(update, values)
        after = page[-1][0], page[-1][1]

"""Add search spaces, the lengths of training up to which trials are trained, and search logs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

SEQ = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("experiments", sa.Column("space", sa.Text, nullable=False, server_default='{"parameters":[]}'))
    op.add_column("trials", sa.Column("until", sa.Integer))
    op.add_column("trials", sa.Column("begins_from", sa.Text))
    experiments = sa.table("experiments", sa.column("number"), sa.column("begins_from"))
    trials = sa.table("trials", sa.column("experiment"), sa.column("begins_from"))
    own = sa.select(experiments.c.begins_from).where(experiments.c.number == trials.c.experiment)
    op.execute(trials.update().values(begins_from=own.scalar_subquery()))
    op.create_index("trials_by_state", "trials", ["experiment", "state"])
    op.create_table(
        "search_log",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=False),
        sa.Column("experiment", sa.Integer, sa.ForeignKey("experiments.number"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("trial", sa.Integer),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("decision", sa.Text),
        sa.UniqueConstraint("experiment", "number", name="search_log_numbers"),
    )
    op.create_index("search_log_by_experiment", "search_log", ["experiment", "seq"])

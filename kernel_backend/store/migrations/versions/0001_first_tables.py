"""Create the first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

SEQ = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    sequence = op.create_table("sequence", sa.Column("value", SEQ, primary_key=True, autoincrement=False))
    op.bulk_insert(sequence, [{"value": 0}])
    _experiments()
    _trials()
    _attempts()
    _events()
    _reports()


def _experiments() -> None:
    op.create_table(
        "experiments",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("group", sa.Text, nullable=False),
        sa.Column("snapshot", sa.Text, nullable=False),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("params", sa.Text, nullable=False),
        sa.Column("python", sa.Text, nullable=False),
        sa.Column("cwd", sa.Text, nullable=False),
        sa.Column("notebook", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
    )
    op.create_index("experiments_by_owner", "experiments", ["owner", "number"])


def _trials() -> None:
    op.create_table(
        "trials",
        sa.Column("experiment", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("index", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("holds", sa.Text, nullable=False),
        sa.Column("params", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("queued_at", sa.Double, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.Double, nullable=False),
        sa.Column("total_steps", sa.BigInteger),
        sa.Column("checkpoint", sa.Text),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("failure", sa.Text),
        sa.Column("ended_at", sa.Double),
        sa.ForeignKeyConstraint(["experiment"], ["experiments.number"]),
    )
    op.create_index("ix_trials_state", "trials", ["state"])


def _attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("experiment", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("placement", sa.Text, nullable=False),
        sa.Column("resume_from", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.Column("outcome", sa.Text),
        sa.Column("failure", sa.Text),
        sa.Column("accepted", sa.BigInteger, nullable=False),
        sa.Column("backend", sa.Text),
        sa.Column("backend_reason", sa.Text),
        sa.Column("token_digest", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(["experiment", "trial"], ["trials.experiment", "trials.index"]),
    )
    op.create_index("ix_attempts_state", "attempts", ["state"])


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("experiment", sa.Integer, nullable=False),
        sa.Column("trial", sa.Integer),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(["experiment"], ["experiments.number"]),
    )
    op.create_index("events_by_experiment", "events", ["experiment", "seq"])


def _reports() -> None:
    op.create_table(
        "reports",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=False),
        sa.Column("experiment", sa.Integer, nullable=False),
        sa.Column("trial", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.Double, nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.UniqueConstraint("experiment", "trial", "kind", "step", name="reports_meaning"),
    )
    op.create_index("reports_by_experiment", "reports", ["experiment", "seq"])

"""Add registered models: their versions, and the log of changes of each model."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.create_table(
        "model_versions",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("experiment", sa.Integer, nullable=False),
        sa.Column("trial", sa.Integer, nullable=False),
        sa.Column("search", sa.Boolean, nullable=False),
        sa.Column("checkpoint", sa.Text, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("digest", "snapshot", "author", "group")),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("guarantee", sa.Text),
        sa.Column("data", sa.Text),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
    )
    op.create_index("model_versions_by_experiment", "model_versions", ["experiment"])
    op.create_table(
        "model_log",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("act", sa.Text, nullable=False),
        sa.Column("version", sa.Integer),
        sa.Column("alias", sa.Text, nullable=False),
        sa.Column("before", sa.Integer),
        sa.Column("note", sa.Text, nullable=False),
    )

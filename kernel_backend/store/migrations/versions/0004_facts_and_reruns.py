"""Add provenance records of attempts, and references from reruns to their experiments."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("experiments", sa.Column("rerun_of", sa.Integer))
    op.add_column("experiments", sa.Column("begins_from", sa.Text))
    op.create_table(
        "facts",
        sa.Column("experiment", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
    )

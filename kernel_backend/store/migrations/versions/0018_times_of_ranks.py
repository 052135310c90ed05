"""Add the seconds that each rank of an attempt spent in each part of its work."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

PARTS = (
    "data",
    "transfer",
    "forward",
    "backward",
    "communication",
    "optimizer",
    "checkpoint",
    "validation",
    "stall",
)


def upgrade() -> None:
    op.create_table(
        "rank_times",
        sa.Column("experiment", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("steps", sa.BigInteger, nullable=False),
        *(sa.Column(part, sa.Double, nullable=False) for part in PARTS),
        sa.Column("newest", sa.Text, nullable=False),
    )

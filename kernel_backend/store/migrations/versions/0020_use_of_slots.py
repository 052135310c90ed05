"""Add the measured use of each rank's slot."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

QUANTITIES = (
    "gpu",
    "cpu",
    "power",
    "cpu_power",
    "memory",
    "gpu_memory",
    "device_memory",
    "device_total",
    "temperature",
)


def upgrade() -> None:
    op.create_table(
        "slot_use",
        sa.Column("experiment", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        *(sa.Column(name, sa.Double) for name in QUANTITIES),
    )

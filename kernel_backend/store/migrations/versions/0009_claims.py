"""Add stored reservations of the scheduler, and an index of attempts by their end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

KEY = ("experiment", "trial", "nth")


def upgrade() -> None:
    op.create_index("attempts_by_end", "attempts", ["ended_at"])
    op.create_table(
        "claims",
        *(sa.Column(name, sa.Integer, primary_key=True, autoincrement=False) for name in KEY),
        sa.Column("head_since", sa.Double),
        sa.Column("kind", sa.Text),
        sa.Column("node", sa.Text),
        sa.Column("kept_since", sa.Double),
        sa.Column("passed", sa.Boolean, nullable=False),
        sa.Column("committed", sa.Double),
    )

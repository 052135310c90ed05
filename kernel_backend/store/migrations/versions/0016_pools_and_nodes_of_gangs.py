"""Add pools, and for each attempt the nodes it runs on and the time at which its engine granted them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("attempts", sa.Column("granted_at", sa.Double))
    op.add_column("attempts", sa.Column("nodes", sa.Text, nullable=False, server_default="[]"))
    op.execute("UPDATE attempts SET granted_at = created_at")  # the slots of this machine are granted at once
    op.create_table(
        "pools",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
    )

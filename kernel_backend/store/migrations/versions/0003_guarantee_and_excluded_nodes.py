"""Add the reproducibility guarantee of an attempt, and the nodes that a log policy excludes for a trial.

A log policy reacts to certain messages in the logs of ranks.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("trials", sa.Column("excluded", sa.Text, nullable=False, server_default="[]"))
    op.add_column("attempts", sa.Column("guarantee", sa.Text))

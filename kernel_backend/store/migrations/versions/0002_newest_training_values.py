"""Add the newest training values of a trial, for experiments without validation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("trials", sa.Column("training", sa.Text, nullable=False, server_default="{}"))

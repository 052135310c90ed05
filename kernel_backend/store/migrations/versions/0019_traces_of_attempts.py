"""Add to attempts the trace that their ranks were asked to record."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.add_column("attempts", sa.Column("trace", sa.Text))

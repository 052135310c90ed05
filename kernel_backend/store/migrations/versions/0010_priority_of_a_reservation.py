"""Add the priority with which a reservation was made."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("claims", sa.Column("kept_priority", sa.Integer))

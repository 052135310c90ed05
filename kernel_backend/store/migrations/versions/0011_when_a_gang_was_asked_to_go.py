"""Add the time when a gang was asked to exit, so that its grace period does not restart with the service."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("claims", sa.Column("leaving", sa.Double))

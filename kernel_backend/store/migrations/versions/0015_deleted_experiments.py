"""Add the times at which an experiment was deleted and its files were removed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("experiments", sa.Column("deleted_at", sa.Double))
    op.add_column("experiments", sa.Column("purged_at", sa.Double))

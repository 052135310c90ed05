"""Add the note and the tags of an experiment."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("experiments", sa.Column("note", sa.Text, nullable=False, server_default=""))
    op.add_column("experiments", sa.Column("tags", sa.Text, nullable=False, server_default="[]"))

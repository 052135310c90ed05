"""Add the id of the request that made an experiment, so that a request whose answer was lost can be repeated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("experiments", sa.Column("request", sa.Text))
    op.create_index("experiments_by_request", "experiments", ["owner", "request"], unique=True)

"""Add a unique id of trials, which ties a checkpoint to its trial even if numbers are reused.

Earlier trials have the empty id; their checkpoints name none.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("trials", sa.Column("uid", sa.Text, nullable=False, server_default=""))

"""Add a unique identity of trials, which ties a checkpoint to its trial although numbers may repeat.

Earlier trials keep the empty one, as do their checkpoints, which name none.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("trials", sa.Column("uid", sa.Text, nullable=False, server_default=""))

"""What no two trials share, though their numbers do: by it a checkpoint is known as its trial's own.

Trials of before keep the empty one, as their checkpoints do, which name none.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("trials", sa.Column("uid", sa.Text, nullable=False, server_default=""))

"""Add the seconds that ranks wait for files that are still fetched."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.add_column("rank_times", sa.Column("input", sa.Double, nullable=False, server_default="0"))

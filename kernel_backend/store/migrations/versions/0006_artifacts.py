"""Add artifacts: files that trials store under a name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

SEQ = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("experiment", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("seq", SEQ, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("media", sa.Text, nullable=False),
        sa.Column("file", sa.Text, nullable=False),
    )

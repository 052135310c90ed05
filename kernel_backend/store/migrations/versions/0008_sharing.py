"""Add quotas, drained nodes, admins' priorities, and the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

SEQ = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("experiments", sa.Column("priority", sa.Integer))
    op.create_index("experiments_by_group", "experiments", ["group", "number"])
    op.create_table(
        "quotas",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("changed", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
    )
    op.create_table(
        "drained",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("seq", SEQ, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("act", sa.Text, nullable=False),
        sa.Column("on", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )

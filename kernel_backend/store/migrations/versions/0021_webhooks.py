"""Add webhooks, and the outbox of notices that wait for them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("everyone", sa.Boolean, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("off", sa.Text, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.Column("failing_since", sa.Double),
        sa.Column("delivered_at", sa.Double),
        sa.Column("dropped", sa.Integer, nullable=False),
    )
    op.create_table(
        "outbox",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("webhook", sa.Integer, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("experiment", sa.Integer, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_index("outbox_by_webhook", "outbox", ["webhook", "seq"])

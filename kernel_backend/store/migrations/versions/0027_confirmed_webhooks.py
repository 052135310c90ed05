"""Add the confirmation of a webhook's mail address, and the id of the request that added a webhook."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.add_column("webhooks", sa.Column("link", sa.Text, nullable=False, server_default=""))
    op.add_column("webhooks", sa.Column("confirmed_at", sa.Double))
    op.add_column("webhooks", sa.Column("request", sa.Text))
    op.create_index("webhooks_by_request", "webhooks", ["owner", "request"], unique=True)

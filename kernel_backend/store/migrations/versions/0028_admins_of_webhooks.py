"""Add when the owner of a webhook for everyone's experiments was last seen to be an admin."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.add_column("webhooks", sa.Column("admin_at", sa.Double))
    op.execute(sa.text("UPDATE webhooks SET admin_at = :now WHERE everyone").bindparams(now=time.time()))

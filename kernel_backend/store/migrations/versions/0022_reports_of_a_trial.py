"""Add an index for the reports of one trial among thousands."""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.create_index("reports_by_trial", "reports", ["experiment", "trial", "seq"])

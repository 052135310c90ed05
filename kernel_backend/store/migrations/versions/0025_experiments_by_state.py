"""Add an index for the experiments in a state, so that finding the few that have not ended reads no others."""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.create_index("experiments_by_state", "experiments", ["state"])

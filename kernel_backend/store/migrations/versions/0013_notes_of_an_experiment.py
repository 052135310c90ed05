"""Add an index that finds the notes among all messages of an experiment."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    notes = sa.text("type = 'note'")
    op.create_index("notes_by_experiment", "events", ["experiment", "seq"], sqlite_where=notes, postgresql_where=notes)

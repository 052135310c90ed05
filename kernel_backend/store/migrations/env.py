"""Run Alembic on the connection that `store/connect.py` passes, within its transaction."""

from __future__ import annotations

from alembic import context

from kernel_backend.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()

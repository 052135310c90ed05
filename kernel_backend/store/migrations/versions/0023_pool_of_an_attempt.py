"""Add the pool of each attempt, since experiments may move; earlier attempts ran in the pools of their experiments."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

_experiments = sa.table("experiments", sa.column("number", sa.Integer), sa.column("config", sa.Text))
_attempts = sa.table("attempts", sa.column("experiment", sa.Integer), sa.column("pool", sa.Text))


def upgrade() -> None:
    op.add_column("attempts", sa.Column("pool", sa.Text, nullable=False, server_default="local"))
    db, here = op.get_bind(), _experiments.c
    configured = db.execute(sa.select(here.number, here.config).where(here.config.contains('"pool"'))).all()
    pools = [{"number": number, "name": name} for number, text in configured if (name := json.loads(text).get("pool"))]
    if pools:
        of = _attempts.c.experiment == sa.bindparam("number")
        db.execute(sa.update(_attempts).where(of).values(pool=sa.bindparam("name")), pools)

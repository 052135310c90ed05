"""Create the tables of the first release, which development had reached in 28 steps.

Names and types stand here apart from `tables.py`: that changes, and this never does.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = None

SEQ = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NOTES = sa.text("type = 'note'")
UNUSUAL = sa.text("(failure IS NOT NULL OR holds NOT IN ('[]', '[\"search\"]'))")
TRIAL = "experiment trial"
ATTEMPT = "experiment trial attempt"


def upgrade() -> None:
    sequence = op.create_table("sequence", *_keys("value", SEQ))
    op.bulk_insert(sequence, [{"value": 0}])
    _experiments()
    _trials()
    _attempts()
    _stream()
    _searches()
    _measured()
    _cluster()
    _webhooks()


def _keys(names: str, kind: Any = sa.Integer) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, primary_key=True, autoincrement=False) for name in names.split()]


def _needed(names: str, kind: Any = sa.Text, default: str | None = None) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False, server_default=default) for name in names.split()]


def _optional(names: str, kind: Any = sa.Text) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind) for name in names.split()]


def _experiments() -> None:
    op.create_table(
        "experiments",
        *_keys("number"),
        *_needed("name state owner group snapshot config params python cwd"),
        *_optional("notebook"),
        *_needed("created_at", sa.Double),
        *_optional("ended_at", sa.Double),
        *_optional("rerun_of", sa.Integer),
        *_optional("begins_from"),
        *_needed("space", default='{"parameters":[]}'),
        *_optional("priority", sa.Integer),
        *_needed("note", default=""),
        *_needed("tags", default="[]"),
        *_optional("deleted_at purged_at", sa.Double),
        *_optional("request"),
    )
    op.create_index("experiments_by_owner", "experiments", ["owner", "number"])
    op.create_index("experiments_by_group", "experiments", ["group", "number"])
    op.create_index("experiments_by_state", "experiments", ["state"])
    op.create_index("experiments_by_request", "experiments", ["owner", "request"], unique=True)


def _trials() -> None:
    op.create_table(
        "trials",
        *_keys("experiment index"),
        *_needed("state holds params"),
        *_needed("attempt failures", sa.Integer),
        *_needed("queued_at", sa.Double),
        *_needed("step", sa.BigInteger),
        *_needed("epoch", sa.Double),
        *_optional("total_steps", sa.BigInteger),
        *_optional("checkpoint"),
        *_needed("metrics"),
        *_optional("failure"),
        *_optional("ended_at", sa.Double),
        *_needed("training", default="{}"),
        *_needed("excluded", default="[]"),
        *_optional("until", sa.Integer),
        *_optional("begins_from best"),
        *_needed("uid", default=""),
        *_optional("best_value", sa.Double),
        sa.ForeignKeyConstraint(["experiment"], ["experiments.number"]),
    )
    op.create_index("ix_trials_state", "trials", ["state"])
    op.create_index("trials_by_state", "trials", ["experiment", "state"])
    op.create_index("trials_by_best", "trials", ["experiment", "best_value"])
    op.create_index("unusual_trials", "trials", ["experiment", "index"], sqlite_where=UNUSUAL, postgresql_where=UNUSUAL)


def _attempts() -> None:
    op.create_table(
        "attempts",
        *_keys("experiment trial number"),
        *_needed("state placement"),
        *_optional("resume_from"),
        *_needed("created_at", sa.Double),
        *_optional("ended_at", sa.Double),
        *_optional("outcome failure"),
        *_needed("accepted", sa.BigInteger),
        *_optional("backend backend_reason"),
        *_needed("token_digest"),
        *_optional("guarantee"),
        *_optional("granted_at", sa.Double),
        *_needed("nodes", default="[]"),
        *_optional("trace"),
        *_needed("pool", default="local"),
        sa.ForeignKeyConstraint(["experiment", "trial"], ["trials.experiment", "trials.index"]),
    )
    op.create_index("ix_attempts_state", "attempts", ["state"])
    op.create_index("attempts_by_end", "attempts", ["ended_at"])
    op.create_table("facts", *_keys(ATTEMPT), *_keys("name", sa.Text), *_needed("at", sa.Double), *_needed("value"))
    op.create_table(
        "artifacts",
        *_keys(TRIAL),
        *_keys("name", sa.Text),
        *_needed("seq", SEQ),
        *_needed("attempt", sa.Integer),
        *_needed("step", sa.BigInteger),
        *_needed("at", sa.Double),
        *_needed("size", sa.BigInteger),
        *_needed("digest media file"),
    )


def _stream() -> None:
    op.create_table(
        "events",
        *_keys("seq", SEQ),
        *_needed("at", sa.Double),
        *_needed("experiment", sa.Integer),
        *_optional("trial", sa.Integer),
        *_needed("type data"),
        sa.ForeignKeyConstraint(["experiment"], ["experiments.number"]),
    )
    op.create_index("events_by_experiment", "events", ["experiment", "seq"])
    op.create_index("notes_by_experiment", "events", ["experiment", "seq"], sqlite_where=NOTES, postgresql_where=NOTES)
    op.create_table(
        "reports",
        *_keys("seq", SEQ),
        *_needed(ATTEMPT, sa.Integer),
        *_needed("at", sa.Double),
        *_needed("kind"),
        *_needed("step", sa.BigInteger),
        *_needed("epoch", sa.Double),
        *_needed("metrics"),
        sa.UniqueConstraint("experiment", "trial", "kind", "step", name="reports_meaning"),
    )
    op.create_index("reports_by_experiment", "reports", ["experiment", "seq"])
    op.create_index("reports_by_trial", "reports", ["experiment", "trial", "seq"])


def _searches() -> None:
    op.create_table(
        "search_log",
        *_keys("seq", SEQ),
        *_needed("experiment number", sa.Integer),
        *_optional("trial", sa.Integer),
        *_needed("at", sa.Double),
        *_needed("event"),
        *_optional("decision"),
        sa.UniqueConstraint("experiment", "number", name="search_log_numbers"),
        sa.ForeignKeyConstraint(["experiment"], ["experiments.number"]),
    )
    op.create_index("search_log_by_experiment", "search_log", ["experiment", "seq"])
    op.create_table(
        "search_histories",
        *_keys("experiment"),
        *_needed("packed", sa.LargeBinary),
        sa.ForeignKeyConstraint(["experiment"], ["experiments.number"]),
    )


def _measured() -> None:
    op.create_table(
        "rank_times",
        *_keys(f"{ATTEMPT} rank"),
        *_needed("at", sa.Double),
        *_needed("steps", sa.BigInteger),
        *_needed("data transfer forward backward communication optimizer checkpoint validation stall", sa.Double),
        *_needed("newest"),
    )
    op.create_table(
        "slot_use",
        *_keys(f"{ATTEMPT} rank number"),
        *_needed("node device"),
        *_needed("at seconds", sa.Double),
        *_optional("gpu cpu power cpu_power memory gpu_memory device_memory device_total temperature", sa.Double),
    )


def _cluster() -> None:
    op.create_table(
        "claims",
        *_keys("experiment trial nth"),
        *_optional("head_since", sa.Double),
        *_optional("kind node"),
        *_optional("kept_since", sa.Double),
        *_needed("passed", sa.Boolean),
        *_optional("committed", sa.Double),
        *_optional("kept_priority", sa.Integer),
        *_optional("leaving", sa.Double),
    )
    at, text = sa.Double, sa.Text
    op.create_table("quotas", *_keys("kind name", text), *_needed("changed"), *_needed("at", at), *_needed("who"))
    op.create_table("pools", *_keys("name", text), *_needed("settings"), *_needed("at", at), *_needed("who"))
    op.create_table("drained", *_keys("node", text), *_needed("at", at), *_needed("who"))
    op.create_table("node_faults", *_keys("attempt pool node kind", text), *_needed("at", at), *_needed("reason"))
    op.create_table("audit", *_keys("seq", SEQ), *_needed("at", at), *_needed("who act on detail"))


def _webhooks() -> None:
    op.create_table(
        "webhooks",
        *_keys("id"),
        *_needed("owner url secret events"),
        *_needed("everyone", sa.Boolean),
        *_needed("at", sa.Double),
        *_needed("off problem"),
        *_optional("failing_since delivered_at", sa.Double),
        *_needed("dropped", sa.Integer),
        *_needed("link", default=""),
        *_optional("confirmed_at", sa.Double),
        *_optional("request"),
        *_optional("admin_at", sa.Double),
    )
    op.create_index("webhooks_by_request", "webhooks", ["owner", "request"], unique=True)
    op.create_table(
        "outbox",
        *_keys("seq", SEQ),
        *_needed("id"),
        *_needed("webhook", sa.Integer),
        *_needed("event"),
        *_needed("experiment", sa.Integer),
        *_needed("at", sa.Double),
    )
    op.create_index("outbox_by_webhook", "outbox", ["webhook", "seq"])

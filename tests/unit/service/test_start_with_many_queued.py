"""Test the start of a service with many queued experiments."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import event

from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.model.experiment import Config
from kernel_backend.model.states import Hold, TrialState
from kernel_backend.service.build import build
from kernel_backend.service.context import Context
from kernel_backend.service.service import Service
from kernel_backend.snapshots.archive import Archive
from kernel_backend.store.sql import SqlStore
from kernel_backend.workspaces.own import OwnWorkspace, SingleWorkspace
from tests.api.served import HERE, StillEngine
from tests.contract.store_contract import draft
from tests.support.empty_database import empty_database

AWAY = HERE.model_copy(update={"healthy": False})  # whatever fits there waits


def service(home: Path, slots: list[int]) -> tuple[Service, SqlStore]:
    """Return a service that was not started, with a queued experiment for each of these numbers of slots."""
    home.mkdir()
    store = SqlStore(empty_database(home / "daylight.db"))
    for count in slots:
        store.add_experiment(draft(config=Config(slots=count)), at=1.0)
    archive, storage, workspace = (
        Archive(home / "snapshots"),
        CheckpointStorage(str(home / "checkpoints")),
        OwnWorkspace(home),
    )
    made = build(Context(store, archive, StillEngine([AWAY]), storage, SingleWorkspace(workspace), home))
    return made, store


def statements(home: Path, count: int) -> int:
    """Return the number of SQL statements in the first round with this many queued experiments."""
    made, store = service(home, [1] * count)
    asked: list[str] = []
    event.listen(store._database.engine, "before_cursor_execute", lambda *args: asked.append(args[2]))
    assert asyncio.run(made._loop.round())
    assert store.trial(count, 1).state is TrialState.QUEUED
    store.close()
    return len(asked)


def test_the_first_round_asks_the_store_no_more_often_for_more_experiments(tmp_path: Path) -> None:
    assert statements(tmp_path / "many", 30) == statements(tmp_path / "few", 3)


@pytest.mark.parametrize("slots", [1, HERE.slots + 1])
def test_a_trial_is_held_at_a_start_where_no_node_could_ever_hold_it(tmp_path: Path, slots: int) -> None:
    made, store = service(tmp_path / "home", [1, slots, 1])
    asyncio.run(made._loop.round())
    held = slots > HERE.slots
    assert store.trial(2, 1).state is (TrialState.PAUSED if held else TrialState.QUEUED)
    assert store.trial(2, 1).holds == ({Hold.ENGINE} if held else frozenset())
    assert store.trial(3, 1).state is TrialState.QUEUED
    store.close()

"""Test the errors for settings that contradict Unix accounts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from traitlets import TraitError

from kernel_backend.app import Daylight
from kernel_backend.errors import PlaceUnavailable
from kernel_backend.store.sql import SqlStore


def test_only_a_hubs_users_are_accounts():
    with pytest.raises(TraitError, match=r"spawn_helper=/run/x\.sock: only a hub's users are accounts; add --hub"):
        Daylight().initialize(["--spawn-helper=/run/x.sock"])


def test_one_folder_of_checkpoints_would_be_everybodys():
    with pytest.raises(TraitError, match="with a spawn helper checkpoints lie in the areas of their owners"):
        Daylight().initialize(["--hub", "--spawn-helper=/run/x.sock", "--checkpoints=/scratch/checkpoints"])
    made = Daylight()
    made.initialize(["--hub", "--spawn-helper=/run/x.sock", "--checkpoints=s3://bucket/runs"])
    assert made.checkpoints == "s3://bucket/runs"


def test_without_the_helper_it_is_told_that_it_does_not_answer(tmp_path: Path):
    async def go():
        made = Daylight(home=str(tmp_path), hub=True, spawn_helper=str(tmp_path / "none.sock"))
        store = SqlStore(f"sqlite:///{tmp_path}/daylight.db")
        service = made._service(tmp_path, store, made._launcher_server(tmp_path))
        with pytest.raises(PlaceUnavailable, match="the spawn helper does not answer: No such file"):
            await asyncio.to_thread(service.submissions._validator._workspaces.check, "dave")
        await service.close()

    asyncio.run(go())

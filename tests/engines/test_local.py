"""Test that the local engine fulfils the contract, and how it handles files and slots."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from kernel_backend import devices
from kernel_backend.engines.local import LocalEngine
from kernel_backend.errors import InvalidRequest
from kernel_backend.home import attempt_folder
from kernel_backend.model.states import Outcome
from tests.engines.contract import EngineContract, ended


class TestLocalEngine(EngineContract):
    @pytest.fixture
    def engine(self, tmp_path: Path) -> LocalEngine:
        return LocalEngine(tmp_path / "home")

    @pytest.fixture
    def again(self, tmp_path: Path) -> LocalEngine:
        return LocalEngine(tmp_path / "home")

    def test_the_token_is_readable_by_its_owner_alone_and_in_no_argv(self, engine, job, tmp_path):
        async def go():
            await engine.submit(job(), "very-secret")
            folder = attempt_folder(tmp_path / "home", job().id)
            assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert "very-secret" not in (folder / "job.json").read_text()
            await ended(engine, job().id)
            await engine.forget(job().id)
            assert not (folder / "token").exists()

        asyncio.run(go())

    def test_an_interpreter_that_does_not_exist_is_an_error_at_once(self, engine, job):
        with pytest.raises(OSError, match="no/such/python"):
            asyncio.run(engine.submit(job().model_copy(update={"python": "/no/such/python"}), "s"))

    def test_an_interpreter_without_daylight_is_a_failure_that_says_so(self, engine, job, tmp_path):
        bare = tmp_path / "bare"
        bare.write_text("#!/bin/sh\necho No module named kernel_backend >&2\nexit 1\n")
        bare.chmod(0o755)

        async def go():
            await engine.submit(job().model_copy(update={"python": str(bare)}), "s")
            found = await ended(engine, job().id)
            assert found.outcome is Outcome.FAILED
            assert "could not launch the ranks (No module named kernel_backend)" in found.result.failure.message

        asyncio.run(go())

    def test_a_job_that_cannot_be_launched_is_a_failure_and_not_a_loss(self, engine, job):
        async def go():
            await engine.submit(job(seconds=0).model_copy(update={"placement": ()}), "s")
            found = await ended(engine, job().id)
            assert (found.outcome, found.result.failure.type) == (Outcome.FAILED, "IndexError")

        asyncio.run(go())


def test_slots_are_cores_where_there_is_no_gpu(monkeypatch):
    monkeypatch.delenv("DAYLIGHT_SLOTS", raising=False)
    monkeypatch.setattr(devices, "_cuda_names", list)
    node = devices.local_node()
    assert (node.kind, node.slots) == ("cpu", devices.cores())


def test_daylight_slots_overrides_what_was_found(monkeypatch):
    monkeypatch.setenv("DAYLIGHT_SLOTS", "7")
    monkeypatch.setattr(devices, "_cuda_names", list)
    assert devices.local_node().slots == 7


@pytest.mark.parametrize("text", ["0", "-1", "two", ""])
def test_a_senseless_number_of_slots_is_named(monkeypatch, text):
    monkeypatch.setenv("DAYLIGHT_SLOTS", text)
    with pytest.raises(InvalidRequest, match="DAYLIGHT_SLOTS"):
        devices.local_node()


def test_more_slots_than_gpus_is_refused(monkeypatch):
    monkeypatch.setenv("DAYLIGHT_SLOTS", "3")
    monkeypatch.setattr(devices, "_cuda_names", lambda: ["A100", "A100"])
    with pytest.raises(InvalidRequest, match="there are 2 GPUs"):
        devices.local_node()

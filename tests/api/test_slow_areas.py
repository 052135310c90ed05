"""Test that a submission whose owner's files do not respond delays no other user's."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernel_backend.client import Client
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.views.overview import Overview
from kernel_backend.workspaces.base import Workspace
from kernel_backend.workspaces.own import OwnWorkspace, SingleWorkspace
from tests.api.people import FakeHub
from tests.api.served import Served, StillEngine, archive


def submit(client: Client) -> Overview:
    """Submit an experiment that is compared with active ones."""
    id, data = archive()
    client.upload_snapshot(id, data)
    return client.submit(Submission(snapshot=id, config=Config(slots=1), name="digits", python="python", cwd="/"))


def test_others_submit_while_the_folders_of_one_do_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()

    class Slow(OwnWorkspace):
        def largest_number(self) -> int:
            asked.set()
            answers.wait(60)
            return 0

    def of(self: SingleWorkspace, owner: str) -> Workspace:
        return Slow(tmp_path) if owner == "dave" else OwnWorkspace(tmp_path)

    monkeypatch.setattr(SingleWorkspace, "of", of)
    served = Served(tmp_path, StillEngine(), identity=FakeHub())
    try:
        with ThreadPoolExecutor() as pool:
            slow = pool.submit(submit, served.client("dave"))
            assert asked.wait(20), slow.exception(1)
            assert submit(served.client("eve")).experiment.owner == "eve"
            waits = not slow.done()
            answers.set()
            assert slow.result().experiment.number == 2
            assert waits
    finally:
        answers.set()
        served.stop()

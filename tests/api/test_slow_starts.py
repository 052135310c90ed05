"""Test that a start whose owner's files are slow delays no other user's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.client import Client
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.search.records import Search
from kernel_backend.service.loop.ends import AttemptEnder
from kernel_backend.spec.assignments import parse_line
from tests.api.served import HERE, Served, StillEngine, archive, submit
from tests.support.world import until


def test_others_are_started_while_the_files_of_one_do_not_answer(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, history = threading.Event(), AttemptEnder.history

    def slow(self: AttemptEnder, experiment: int, trial: int) -> object:
        if experiment == 1:
            answers.wait(60)
        return history(self, experiment, trial)

    monkeypatch.setattr(AttemptEnder, "history", slow)
    submit(client, "slow", slots=1)
    submit(client, "quick", slots=1)
    until(lambda: AttemptId(2, 1, 1) in served.engine.jobs, "the other one starts")
    assert AttemptId(1, 1, 1) not in served.engine.jobs
    answers.set()
    until(lambda: AttemptId(1, 1, 1) in served.engine.jobs, "the slow one starts when it is answered")


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[Served]:
    """Provide a service of four slots."""
    made = Served(tmp_path, StillEngine([HERE.model_copy(update={"slots": 4, "cores": 4})]))
    yield made
    made.stop()


def test_a_round_waits_once_for_the_files_of_a_search(wide: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, history, wait = threading.Event(), AttemptEnder.history, asyncio.wait
    asked: set[int] = set()
    in_vain: list[float] = []

    def slow(self: AttemptEnder, experiment: int, trial: int) -> object:
        asked.add(trial)
        answers.wait(60)
        return history(self, experiment, trial)

    async def counted(tasks: Any, *, timeout: float | None = None) -> Any:
        done, pending = await wait(tasks, timeout=timeout)
        if timeout and any("begins from" in task.get_name() for task in pending):
            in_vain.append(timeout)
        return done, pending

    monkeypatch.setattr(AttemptEnder, "history", slow)
    monkeypatch.setattr(asyncio, "wait", counted)
    client, (id, data) = wide.client(), archive()
    client.upload_snapshot(id, data)
    config = Config(slots=1, search=Search(method="random", trials=4, parallel=4))
    space = parse_line(["lr=0.01..1:log"]).space
    client.submit(Submission(snapshot=id, config=config, space=space, python="python", cwd="/"))
    until(lambda: len(asked) == 4, "all of its trials are looked up")
    assert len(in_vain) == 1
    answers.set()
    until(lambda: len(wide.engine.jobs) == 4, "all of them start when they are answered")
    client.close()

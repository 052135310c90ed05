"""A start whose owner's files are slow holds up nobody else's."""

from __future__ import annotations

import threading

import pytest

from kernel_backend.client import Client
from kernel_backend.model.ids import AttemptId
from kernel_backend.service.ends import Ends
from tests.api.served import Served, submit
from tests.world import until


def test_others_are_started_while_the_files_of_one_do_not_answer(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, history = threading.Event(), Ends.history

    def slow(self: Ends, experiment: int, trial: int) -> object:
        if experiment == 1:
            answers.wait(60)
        return history(self, experiment, trial)

    monkeypatch.setattr(Ends, "history", slow)
    submit(client, "slow", slots=1)
    submit(client, "quick", slots=1)
    until(lambda: AttemptId(2, 1, 1) in served.engine.jobs, "the other one starts")
    assert AttemptId(1, 1, 1) not in served.engine.jobs
    answers.set()
    until(lambda: AttemptId(1, 1, 1) in served.engine.jobs, "the slow one starts when it is answered")

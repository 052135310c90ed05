"""Test that a gang beyond its account's limit is preempted in a real service, and resumes when the limit allows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.client import Client
from kernel_backend.engines.base import GangStatus
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Committed, Delivery
from kernel_backend.scheduler.rules import Rules
from tests.api.served import Served, StillEngine, started, submit, token_of
from tests.support.world import until


def trains(served: Served, client: Client, key: AttemptId) -> None:
    """Let an attempt run and commit a checkpoint."""
    records = (started(), Committed(number=2, at=5.0, id=f"9-{key.number}", step=9, epoch=1.0, bytes=9, seconds=0.1))
    client.deliver(key, token_of(served, key), Delivery(records=records))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, StillEngine(), rules=Rules(min_run=0.0))
    yield served
    served.stop()


def test_who_is_above_a_lowered_limit_saves_and_goes_and_comes_back_in_his_place(served: Served, client: Client):
    first, second = AttemptId(1, 1, 1), AttemptId(2, 1, 1)
    submit(client, "first", slots=1)
    owner = client.experiment(1).experiment.owner
    submit(client, "second", slots=1)
    trains(served, client, first)
    trains(served, client, second)
    queued_at = client.experiment(2).trials[0].queued_at
    served.roster.users = {owner: Quota(limit=1)}
    until(lambda: client.experiment(2).trials[0].state == "releasing", "the youngest is asked to go")
    assert client.experiment(1).trials[0].state == "running"
    until(lambda: any("was preempted" in each for each in client.experiment(2).warnings), "it is told")
    assert not any("#2.1" in each for each in client.experiment(2).warnings)
    served.engine.step_aside(second)
    until(lambda: (now := client.experiment(2)).state == "queued" and now.wait is not None, "it asks again")
    shown = client.experiment(2)
    assert shown.wait is not None
    assert shown.wait.reason == "next in queue; your limit of 1 is in use"
    assert shown.trials[0].queued_at == queued_at
    assert shown.trials[0].holds == frozenset()
    served.roster.users = {}
    until(lambda: AttemptId(2, 1, 2) in served.engine.jobs, "it goes on")
    assert AttemptId(1, 1, 2) not in served.engine.jobs


class Stubborn(StillEngine):
    """Engine whose gangs ignore requests to exit; it counts the service's rounds since the last request."""

    rounds = 0

    async def release(self, key: AttemptId) -> None:
        self.rounds = 0

    async def statuses(self) -> list[GangStatus]:
        self.rounds += 1
        return await super().statuses()


def test_the_grace_of_who_does_not_go_is_over_however_often_the_service_restarts(tmp_path: Path):
    engine, key, rules, deadline = Stubborn(), AttemptId(1, 1, 1), Rules(grace=5.0), time.monotonic() + 60
    served = Served(tmp_path, engine, rules=rules)
    client, store = served.client(), served.service._store
    submit(client, "first", slots=1)
    trains(served, client, key)
    client.pause(1)
    client.close()
    until(lambda: any(each.leaving for each in store.reservations()), "it is kept when it was asked")
    while key in engine.jobs:
        assert time.monotonic() < deadline, "it is never killed"
        served.stop()
        engine.rounds = -100  # until this service has asked
        served = Served(tmp_path, engine, rules=rules)
        until(lambda: engine.rounds >= 2 or key not in engine.jobs, "it is asked, and a round has passed")
    served.stop()

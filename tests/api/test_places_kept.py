"""Test that queue positions and reservations survive restarts of a real service whose gangs are lost meanwhile."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kernel_backend.engines.base import GangStatus
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.states import Outcome
from kernel_backend.scheduler.requests import Reservation
from tests.api.served import Served, StillEngine, submit, token_of
from tests.api.test_put_aside import trains
from tests.support.world import until


def lose(engine: StillEngine, key: AttemptId) -> None:
    """Let a gang disappear for an unknown reason."""
    engine.ended[key] = GangStatus(key=key, phase="ended", outcome=Outcome.LOST)


def kept(served: Served) -> dict[int, Reservation]:
    """Return the scheduler's reservations by experiment."""
    picture = served.run(served.service._loop.cluster_state.now())
    return {each.key.experiment: each for each in picture.reservations}


@pytest.mark.parametrize("seed", [1, 2])
def test_places_and_reservations_outlive_faults_and_restarts(tmp_path: Path, seed: int) -> None:
    draw, engine = random.Random(seed), StillEngine()
    served = Served(tmp_path, engine)
    client = served.client()
    for slots in (1, 2, 1, 2):
        submit(client, slots=slots)
    storage = [client.experiment(number).trials[0].queued_at for number in range(1, 5)]
    until(lambda: AttemptId(1, 1, 1) in engine.jobs, "the first starts")
    until(lambda: 2 in kept(served), "something is kept for the second, which does not fit")
    reserved = kept(served)[2]
    for number in range(1, 5):
        running = AttemptId(1, 1, number)  # whoever comes back to the first place goes first
        trains(served, client, running)  # or it would have to rest
        restarts = draw.random() < 0.7
        if restarts:
            client.close()
            served.stop()
        lose(engine, running)
        if restarts:
            served = Served(tmp_path, engine)
            client = served.client()
        token_of(served, running._replace(number=number + 1))
        assert list(engine.jobs) == [AttemptId(1, 1, number + 1)]
        assert kept(served)[2] == reserved
        assert [client.experiment(number).trials[0].queued_at for number in range(1, 5)] == storage
    client.close()
    served.stop()

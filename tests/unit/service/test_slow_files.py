"""Test that users with slow files neither delay the scheduler nor other users."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from kernel_backend.environments.storage import Environments
from kernel_backend.model.snapshot import Environment, Snapshot
from kernel_backend.scheduler.requests import RequestKey
from kernel_backend.service.lookups import AT_ONCE, Lookups
from kernel_backend.snapshots.archive import Archive, pack_snapshot
from kernel_backend.snapshots.environment import record
from tests.support.clusters import nodes
from tests.unit.service.test_cluster_state import World

PATIENCE_S = 60.0  # after which a round that waits for a user's files is given up


class Slow(Environments):
    """Environments that are all built, on a disk that answers only when a test allows it."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.answers = threading.Event()

    @override
    def python(self, environment: Environment) -> Path:
        self.answers.wait(2 * PATIENCE_S)
        return Path("python")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.engine.there = nodes(1, 1)
    made.workspace.environments = Slow(tmp_path)
    yield made
    answers(made)
    made.store.close()


def answers(world: World) -> None:
    assert isinstance(world.workspace.environments, Slow)
    world.workspace.environments.answers.set()


def locked(world: World) -> int:
    """Return an experiment of Ada's in a locked environment."""
    snapshot = Snapshot(version="", numerics=1, pieces=(), roles_from=1, environment=record())
    id, data = pack_snapshot("", snapshot)
    Archive(world.home / "snapshots").put(id, data)
    return world.submit("ada", snapshot=id, env="locked")


def started(world: World) -> list[int]:
    async def decide() -> list[int]:
        return [start.request.experiment for start in await asyncio.wait_for(world.decide(), PATIENCE_S)]

    return asyncio.run(decide())


def test_a_user_whose_disk_is_silent_holds_no_round_up(world: World) -> None:
    waiting, other = locked(world), world.submit("bob")
    assert started(world) == [other]
    request = asyncio.run(world.cluster_state.now()).queue.requests[RequestKey(waiting, 1)]
    assert request.preparing == "its locked environment is being looked for"


def test_a_user_whose_disk_answers_late_keeps_the_old_place(world: World) -> None:
    world.engine.there = []
    first = locked(world)
    world.at += 1.0
    second = world.submit("bob")
    assert started(world) == []
    answers(world)

    async def heard() -> None:
        while (await world.cluster_state.now()).queue.requests[RequestKey(first, 1)].preparing:
            await asyncio.sleep(0.01)

    asyncio.run(heard())
    world.engine.there = nodes(1, 1)
    assert started(world) == [first]
    assert second in {key.experiment for key in asyncio.run(world.cluster_state.now()).queue.requests}


def test_nobody_overtakes_in_the_first_round_after_a_restart(world: World) -> None:
    answers(world)
    first = locked(world)
    world.at += 1.0
    world.submit("bob")
    world.cluster_state = world.afresh()
    assert started(world) == [first]


def test_a_question_is_asked_once_at_a_time_and_few_of_an_owner_at_once() -> None:
    go, asked = threading.Event(), []

    def find(key: int) -> str:
        asked.append(key)
        go.wait(PATIENCE_S)
        return str(key)

    async def request() -> list[str | None]:
        woken = asyncio.Event()
        lookups = Lookups(woken.set)
        lookups.start()
        questions: list[tuple[Any, ...]] = [("ada", key, lambda key=key: find(key)) for key in range(3 * AT_ONCE)]
        assert [lookups.answer(*each) for each in questions * 2] == [None] * 6 * AT_ONCE
        while len(asked) < AT_ONCE:
            await asyncio.sleep(0.01)
        assert lookups.answer("bob", "other", lambda: "well") is None
        while lookups.answer("bob", "other", lambda: "well") is None:  # hers are in nobody's way
            await asyncio.sleep(0.01)
        assert len(asked) == AT_ONCE
        go.set()
        while None in (found := [lookups.answer(*each) for each in questions]):
            await asyncio.wait_for(woken.wait(), PATIENCE_S)
            woken.clear()
        return found

    assert asyncio.run(request()) == [str(key) for key in range(3 * AT_ONCE)]
    assert sorted(asked) == list(range(3 * AT_ONCE))

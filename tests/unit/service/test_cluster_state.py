"""Test that the service's cluster state always agrees with the store, after any events and restarts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.model import events as e
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.experiment import Config
from kernel_backend.model.reports import Committed, Started
from kernel_backend.model.resources import Node
from kernel_backend.model.states import Outcome, TrialState
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.decisions import Start
from kernel_backend.scheduler.requests import RequestKey, Reservation
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.state import ClusterState, UsageByName
from kernel_backend.service.checkpoint_copies import CheckpointCopies
from kernel_backend.service.environments import Preparation
from kernel_backend.service.search.followed import FollowedCheckpoints
from kernel_backend.service.search.runner import Searches
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.service.state.nodes import MarkedNodes
from kernel_backend.service.state.requests import RequestBuilder
from kernel_backend.snapshots.archive import Archive
from kernel_backend.store.base import NewExperiment, Store
from kernel_backend.store.sql import SqlStore
from kernel_backend.workspaces.own import OwnWorkspace, SingleWorkspace
from tests.support.clusters import nodes
from tests.support.empty_database import empty_database
from tests.support.quotas import Named

HAPPENS = ("submit", "submit", "commit", "crash", "crash", "goes", "ends", "quota", "drain", "pause", "restart")
DAY_S = 86400.0
OWNERS = {"ada": "vision", "bob": "speech", "cy": "speech"}


@dataclass
class Machines:
    """Engine with only the methods that a cluster state needs."""

    there: list[Node] = field(default_factory=lambda: nodes(2, 4))

    async def nodes(self) -> list[Node]:
        return self.there


class World:
    """Store with cluster states over it, and the actions of a control loop."""

    def __init__(self, home: Path, seed: int = 0) -> None:
        self.draw, self.at, self.home = random.Random(seed), 1_000_000.0, home
        self.store: Store = SqlStore(empty_database(home / "daylight.db"))
        self.engine, self.quotas = Machines(), Named()
        self.workspace = OwnWorkspace(home)
        self.cluster_state = self.afresh()
        self.promised: dict[RequestKey, Reservation] = {}  # to those that hold slots
        self.first_requested: dict[RequestKey, float] = {}  # when each has asked first

    def afresh(self) -> ClusterStateManager:
        """Return the cluster state of a restarted service."""
        archive, storage = Archive(self.home / "snapshots"), CheckpointStorage(str(self.home / "checkpoints"))
        preparation = Preparation(archive, SingleWorkspace(self.workspace), lambda pool: None, lambda: None)
        followed = FollowedCheckpoints(self.store, CheckpointStorage("/nowhere"))
        searches = Searches(self.store, lambda experiment: pytest.fail("nobody searches"), followed)
        asking = RequestBuilder(self.store, searches, preparation, CheckpointCopies(storage, lambda: None))
        rules = Rules(min_run=60.0)
        marked = MarkedNodes(self.store, self.engine, self.quotas, lambda: self.at)  # type: ignore[arg-type]
        return ClusterStateManager(self.store, marked, self.quotas, asking, rules, lambda: self.at)

    def submit(self, owner: str, snapshot: str = "0" * 64, **config: Any) -> int:
        given: dict[str, Any] = {"slots": 1, **config}
        draft = NewExperiment(
            owner=owner,
            group=OWNERS[owner],
            snapshot=snapshot,
            config=Config(**given),
            params={},
            python="python",
            cwd="/",
        )
        return self.store.add_experiment(draft, self.at)[0].number

    async def decide(self) -> list[Start]:
        """Decide and apply, like a round of the control loop."""
        async with self.cluster_state.settled() as cluster:
            decisions = decide(cluster)
            self.cluster_state.decided(cluster, decisions)
        for start in decisions.starts:
            key = start.request.key
            async with self.cluster_state.starting(key, start):
                granted = self.draw.random() < 0.7  # the others wait in their engine's own queue
                self.store.add_attempt(*key[:2], start.placement, None, "digest", self.at, granted=granted)
            self.promised.pop(key, None)
            if start.reservation is not None:
                self.promised[key] = start.reservation
        for preempt in decisions.preempts:
            self.store.advance_trial(*preempt.run.key[:2], e.Release(), self.at)
        await self.cluster_state.now()
        await self.cluster_state.keep()
        return list(decisions.starts)

    def running(self, *states: TrialState) -> list[RequestKey]:
        wanted = states or (TrialState.STARTING, TrialState.RUNNING, TrialState.RELEASING)
        return [RequestKey(each.experiment, each.index) for each in self.store.live_trials() if each.state in wanted]

    def ends(self, key: RequestKey, event: e.Event, outcome: Outcome) -> None:
        """End a gang: advance its trial first, then close its attempt."""
        trial = self.store.advance_trial(*key[:2], event, self.at)
        attempt = self.store.attempts(*key[:2])[-1]
        self.store.advance_attempt(attempt.id, e.Ended(), self.at, outcome=outcome)
        if trial.state is not TrialState.QUEUED:
            self.promised.pop(key, None)
            if trial.state is TrialState.COMPLETED:
                self.store.advance_experiment(key.experiment, e.Completed(), self.at)

    def commits(self, key: RequestKey) -> None:
        attempt = self.store.attempts(*key[:2])[-1]
        words = {"backend": "torch", "reason": "chosen", "world": 1, "steps_per_epoch": 9, "parameters": 3}
        started = Started.model_validate({"number": 1, "at": self.at, "total_steps": 900, **words})
        id = f"9-{attempt.number}"
        done = Committed(number=2, at=self.at, id=id, step=9, epoch=1.0, bytes=9, seconds=0.1)
        self.store.accept(attempt.id, [started, done], self.at)

    async def something(self) -> None:
        """Apply a random event."""
        draw, running = self.draw, self.running()
        self.at += draw.choice((1.0, 70.0, 500.0, 4000.0, 40000.0))
        match draw.choice(
            ("submit", "submit", "commit", "grant", "crash", "goes", "ends", "quota", "drain", "pause", "restart")
        ):
            case "submit":
                config = {"slots": draw.choice((1, 2, 3, 8)), "preemptible": draw.random() < 0.5}
                max_time = draw.choice((None, 3600.0))
                number = self.submit(draw.choice(sorted(OWNERS)), **config, max_time=max_time)
                self.first_requested[RequestKey(number, 1)] = self.at
            case "commit" if running:
                self.commits(draw.choice(running))
            case "grant" if pending := [each for each in self.store.open_attempts() if each.granted_at is None]:
                self.store.advance_attempt(draw.choice(pending).id, e.Placed(), self.at, granted_at=self.at)
            case "crash" if running:
                self.ends(draw.choice(running), e.Lost(), Outcome.LOST)
            case "goes" if leaving := self.running(TrialState.RELEASING):
                self.ends(draw.choice(leaving), e.Released(held=False), Outcome.RELEASED)
            case "ends" if running := self.running(TrialState.STARTING, TrialState.RUNNING):
                self.ends(draw.choice(running), e.Finished(), Outcome.OK)
            case "quota":
                quotas = Quota(), Quota(guarantee=3), Quota(limit=4), Quota(slot_hours="40/2d")  # type: ignore[arg-type]
                self.quotas.users = self.quotas.users | {draw.choice(sorted(OWNERS)): draw.choice(quotas)}
            case "drain":
                self.quotas.drained = draw.choice((frozenset(), frozenset({"n1"})))
            case "pause":
                queued = self.running(TrialState.QUEUED)
                if queued:
                    key = draw.choice(queued)
                    self.store.advance_trial(*key[:2], e.Held(), self.at)
                    self.store.advance_trial(*key[:2], e.Lifted(), self.at)
            case "restart":
                self.cluster_state = self.afresh()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], World]:
    def make(seed: int) -> World:
        return World(tmp_path_factory.mktemp("world"), seed)

    return make


@pytest.fixture
def world(made: Callable[[int], World]) -> Iterator[World]:
    world = made(0)
    yield world
    world.store.close()


def same(kept: ClusterState, afresh: ClusterState) -> None:
    """Assert that everything that a decision reads is equal in both states."""
    at = kept.at
    assert {key: replace(run, leaving=None) for key, run in kept.runs.items()} == {
        key: replace(run, leaving=None) for key, run in afresh.runs.items()
    }
    for key, run in kept.runs.items():
        assert run.reservation == afresh.runs[key].reservation
        assert (run.leaving is None) == (afresh.runs[key].leaving is None)
    assert kept.queue.requests == afresh.queue.requests
    assert set(kept.reservations) == set(afresh.reservations)
    assert kept.nodes == afresh.nodes
    assert kept.free == afresh.free
    assert _heads(kept) == pytest.approx(_heads(afresh), abs=61.0)
    for mine, other in ((kept.users, afresh.users), (kept.groups, afresh.groups), (kept.members, afresh.members)):
        assert _used(mine, at) == pytest.approx(_used(other, at), rel=1e-6, abs=1e-3)


def _heads(cluster: ClusterState) -> dict[object, float]:
    lines = [(pool, key, line) for pool, found in cluster.queue.lines.items() for key, line in found.items()]
    return {(pool, *key, line.first.key): line.since for pool, key, line in lines}


def _used(accounts: UsageByName, at: float) -> dict[object, float]:
    found: dict[object, float] = {}
    for name, meter in accounts.items():
        quota = accounts.quota(name).slot_hours
        if meter.held or meter.waiting or meter.decayed(at) > 1.0:  # what has faded away is not looked for any more
            found |= {
                (name, "held"): meter.held,
                (name, "decayed"): meter.decayed(at),
                (name, "waiting"): meter.waiting,
            }
            found[name, "window"] = meter.within(quota.window, at) if quota else 0.0
    return found


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_the_picture_is_the_one_that_a_restart_gives_and_nobody_loses_his_place(made: Any, seed: int) -> None:
    world: World = made(seed)

    async def live() -> None:
        for _ in range(25):
            await world.something()
            await world.decide()
            kept = await world.cluster_state.now()
            same(kept, await world.afresh().now())
            reserved = {each.key: each for each in kept.reservations}
            for key, request in kept.queue.requests.items():
                assert request.queued_at == world.first_requested[key]
                if key in world.promised:  # it came back, and has what it was started by
                    assert reserved[key].since == world.promised[key].since
                    del world.promised[key]

    asyncio.run(live())
    world.store.close()


def test_a_clock_that_is_set_right_after_a_jump_leaves_nobody_resting(world: World) -> None:
    number = world.submit("ada")
    key = RequestKey(number, 1)

    async def live() -> list[int]:
        await world.decide()
        world.at += 10 * DAY_S
        started = []
        for _ in range(2):  # lost at once, twice: it rests for two seconds
            world.ends(key, e.Lost(), Outcome.LOST)
            started.append(len(await world.decide()))
            world.at += 1.0
        world.ends(key, e.Lost(), Outcome.LOST)
        world.at += 1.0
        started.append(len(await world.decide()))
        world.at -= 10 * DAY_S
        started.append(len(await world.decide()))
        return started

    assert asyncio.run(live()) == [1, 1, 0, 1]

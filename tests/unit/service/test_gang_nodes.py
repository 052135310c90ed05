"""Test launchers of a gang's nodes over a store: they start together, learn of failures, and exit when fenced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_backend import __version__
from kernel_backend.model import events as e
from kernel_backend.model.experiment import Config
from kernel_backend.model.launch.nodes import Device, JoinAnswer, NodeOffer, NodeOrder, NodeState, Reached
from kernel_backend.model.node_faults import NodeFault, NodeName
from kernel_backend.model.resources import Share
from kernel_backend.model.states import AttemptState, Outcome
from kernel_backend.model.trial import Attempt
from kernel_backend.service.loop import gang_nodes
from kernel_backend.service.loop.gang_nodes import GangNodes
from kernel_backend.service.notifier import Notifier
from kernel_backend.store.base import NewExperiment
from kernel_backend.store.sql import SqlStore
from tests.support.empty_database import empty_database

TWO = tuple(Share(node=f"wanted-{n}", kind="cpu", address="", slots=(0,)) for n in range(2))


class Cluster:
    """Store with one attempt on two nodes, and the service's part that coordinates their launchers."""

    def __init__(self, folder: Path) -> None:
        self.store = SqlStore(empty_database(folder / "trials.db"))
        fields = {"name": "", "owner": "ada", "group": "ada", "snapshot": "0" * 64, "python": "python", "cwd": "/"}
        self.store.add_experiment(NewExperiment(config=Config(slots=2), params={}, **fields), 1.0)
        self.attempt = self.add()
        self.blamed: list[tuple[str, str]] = []  # nodes and the kinds of their faults
        self.left_out = True  # whether a node that is blamed is left out, as there are others
        self.nodes = self.restarted()

    def restarted(self) -> GangNodes:
        return GangNodes(self.store, lambda pool: None, Notifier(), lambda: None, self.blame)

    async def blame(self, faults: Iterable[NodeFault]) -> frozenset[NodeName]:
        found = list(faults)
        self.blamed += [(each.node, each.kind) for each in found]
        return frozenset(each.name for each in found if self.left_out)

    def add(self) -> Attempt:
        return self.store.add_attempt(1, 1, TWO, None, "digest", 2.0, granted=False)

    async def join(self, node: int, process: str = "", **fields: Any) -> JoinAnswer:
        return await self.nodes.join(self.attempt.id, offer(node, process or f"launcher-{node}", **fields))

    async def begin(self) -> None:
        await self.join(0)
        assert (await self.join(1)).action == "wait"
        assert (await self.join(1, reached=(Reached("10.0.0.1", "10.0.0.2"),))).action == "go"
        assert (await self.join(0)).action == "go"

    async def state(self, node: int, wait: float = 0.0, **fields: Any) -> NodeOrder:
        state = NodeState(node=node, process=f"launcher-{node}", wait=wait, **fields)
        return await self.nodes.state(self.attempt.id, state)


def offer(node: int, process: str, **fields: Any) -> NodeOffer:
    defaults: dict[str, Any] = {"kind": "cpu", "slots": 1, "version": __version__, "clock": time.time()}
    address = Device("eth0", f"10.0.0.{node + 1}")
    return NodeOffer(
        node=node, nodes=2, process=process, name=f"n{node + 1}", addresses=(address,), **(defaults | fields)
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def go(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await work()

    asyncio.run(main())


def test_ranks_begin_once_both_nodes_are_there_and_then_slots_are_charged(cluster: Cluster) -> None:
    async def work() -> None:
        assert (await cluster.join(0)).reason == "1 of 2 nodes have joined: n1"
        assert cluster.store.attempt(cluster.attempt.id).granted_at is None
        await cluster.begin()
        found = cluster.store.attempt(cluster.attempt.id)
        assert (found.state, [node.name for node in found.nodes]) == (AttemptState.PLACED, ["n1", "n2"])
        assert found.granted_at is not None

    go(work)


def test_a_restarted_service_gives_the_same_answer_and_no_other_launcher_a_place(cluster: Cluster) -> None:
    async def work() -> None:
        await cluster.begin()
        cluster.nodes = cluster.restarted()
        again = await cluster.join(0)
        assert (again.action, again.nodes) == ("go", cluster.store.attempt(cluster.attempt.id).nodes)
        late = await cluster.join(1, process="another-launcher")
        assert (late.action, late.reason) == ("leave", "the gang has begun with other launchers")

    go(work)


def test_a_second_launcher_of_a_node_leaves(cluster: Cluster) -> None:
    async def work() -> None:
        await cluster.join(0)
        assert (await cluster.join(0, process="another-launcher")).action == "leave"

    go(work)


@pytest.mark.parametrize(
    ("fields", "reason", "kind"),
    [
        ({"version": "0.0.1"}, "n2 has Daylight 0.0.1", "version"),
        ({"kind": "cuda"}, "n2 was to have slots of kind cpu, and its launcher finds cuda", "devices"),
        ({"slots": 0}, "2 slots were asked for, and 1 are there: n1 has 1, n2 has 0", "devices"),
    ],
)
def test_a_node_that_is_not_what_was_promised_sends_all_launchers_away_and_is_blamed(
    cluster: Cluster, fields: dict[str, Any], reason: str, kind: str
) -> None:
    async def work() -> None:
        assert (await cluster.join(0)).action == "wait"
        refused = await cluster.join(1, **fields)
        assert (refused.action, refused.outcome) == ("leave", "lost")
        assert refused.reason.startswith(reason)
        assert refused.reason.endswith("Node n2 is left out for now, and the gang goes elsewhere")
        assert await cluster.join(0) == refused
        assert cluster.blamed == [("n2", kind)]

    go(work)


def test_the_fault_of_a_node_that_cannot_be_left_out_fails_the_attempt(cluster: Cluster) -> None:
    async def work() -> None:
        cluster.left_out = False
        await cluster.join(0)
        refused = await cluster.join(1, version="0.0.1")
        assert (refused.action, refused.outcome) == ("leave", "failed")
        assert "elsewhere" not in refused.reason

    go(work)


def test_a_broken_rank_is_news_to_the_other_node_at_once(cluster: Cluster) -> None:
    async def work() -> None:
        await cluster.begin()
        waiting = asyncio.create_task(cluster.state(0, wait=30.0))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert (await cluster.state(1, broken="rank 1 was ended by SIGKILL")).action == "continue"
        order = await asyncio.wait_for(waiting, 5.0)
        assert (order.action, order.reason) == ("end", "rank 1 was ended by SIGKILL on n2")

    go(work)


def test_an_attempt_that_was_followed_by_another_is_left(cluster: Cluster) -> None:
    async def work() -> None:
        await cluster.begin()
        cluster.store.advance_attempt(cluster.attempt.id, e.Ended(), 5.0, outcome=Outcome.LOST)
        cluster.store.advance_trial(1, 1, e.Lost(), 5.0)
        cluster.add()
        assert (await cluster.state(0)).action == "leave"
        assert (await cluster.join(1)).action == "leave"

    go(work)


def test_a_gang_that_is_released_before_it_begins_does_not_begin(cluster: Cluster) -> None:
    async def work() -> None:
        cluster.store.advance_trial(1, 1, e.Release(), 5.0)
        answer = await cluster.join(0)
        assert (answer.action, answer.outcome) == ("leave", "released")

    go(work)


def test_a_node_that_falls_silent_is_given_up(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        await cluster.begin()
        await cluster.state(0)
        await cluster.state(1)
        monkeypatch.setattr(gang_nodes, "SILENT_S", 0.05)
        await asyncio.sleep(0.1)
        assert (await cluster.state(0)).reason == "node n2 has not been heard of for 0 s"
        assert (await cluster.state(1, ended=True)).action == "continue"

    go(work)


def test_a_clock_that_is_wrong_is_noted_and_counts_against_its_node(cluster: Cluster) -> None:
    async def work() -> None:
        await cluster.join(0)
        await cluster.join(1, clock=time.time() + 300, reached=(Reached("10.0.0.1", "10.0.0.2"),))
        assert "the clock of n2 is 300 s ahead" in cluster.store.overview(1).warnings
        assert cluster.blamed == [("n2", "clock")]

    go(work)


def test_a_node_that_still_gets_ready_is_waited_for_beyond_the_time_to_join(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(gang_nodes, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))

    async def work() -> None:
        nonlocal now
        await cluster.join(0)
        now += 290
        assert (await cluster.state(1)).action == "continue"
        now += 290
        assert (await cluster.join(0)).action == "wait"
        now += 20
        assert (await cluster.join(0)).reason.startswith("1 of 2 nodes have not joined within 300 s")

    go(work)

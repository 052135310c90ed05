"""Test that a notebook server is stopped only by the rule, after another look at it, and with an audit entry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.errors import ServiceUnreachable
from kernel_backend.model.cluster.servers import Server
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.notebook_servers import take_in
from kernel_backend.scheduler.rules import Rules
from kernel_backend.service.notebook_servers import Notebooks
from kernel_backend.store.sql import SqlStore
from tests.support.clusters import Cluster, nodes
from tests.support.empty_database import empty_database
from tests.support.quotas import Named

HOUR = 3600.0
NOW = 1_800_000_000.0


class Standing:
    """Hub whose servers run until they are stopped; while it is `away`, its calls raise an error."""

    def __init__(self, *there: Server) -> None:
        self.there, self.away, self.stopped = list(there), False, list[str]()

    async def read(self) -> tuple[Server, ...]:
        if self.away:
            raise ServiceUnreachable("the hub does not answer")
        return tuple(self.there)

    async def stop(self, server: Server) -> None:
        await self.read()
        self.stopped.append(server.full_name)


def dave(active: float, slots: int = 4) -> Server:
    return Server(owner="dave", group="speech", slots=slots, since=active - HOUR, last_activity=active)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the time between a decision and its action at zero, as audit entries name minutes."""
    monkeypatch.setattr("kernel_backend.service.notebook_servers.time.time", lambda: NOW)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    store = SqlStore(empty_database(tmp_path / "daylight.db"))
    yield store
    store.close()


def cluster(server: Server) -> Cluster:
    """Return a cluster of which dave holds all slots, while vision requests its guaranteed ones."""
    c = Cluster(*nodes(1, 4), groups={"vision": {"guarantee": 2}}, rules=Rules(idle_servers=HOUR))
    c.at(NOW)
    take_in(c.picture, [server])
    c.ask("ada", 2, "vision")
    return c


def taken_back(store: SqlStore, c: Cluster, hub: Standing) -> Named:
    rings: list[None] = []
    roster = Named()
    notebooks = Notebooks(store, roster, hub, lambda: rings.append(None))
    (preempt,) = decide(c.picture).preempts
    asyncio.run(notebooks.take_back(c.picture, preempt))
    return roster


def test_an_idle_server_is_stopped_once_and_it_is_written_down(store):
    idle = dave(NOW - 2 * HOUR)
    c, hub = cluster(idle), Standing(idle)
    taken_back(store, c, hub)
    assert hub.stopped == ["dave/"]
    (entry,) = store.audit()
    assert (entry.who, entry.act, entry.on) == ("daylight", "stop", "notebook server dave/")
    assert entry.detail == "4 slots, nothing done for 120 min: #1.1 is within a guarantee"
    take_in(c.picture, [idle])  # it takes a while to go
    assert decide(c.picture).preempts == ()


def test_one_that_was_used_meanwhile_stays(store):
    c, hub = cluster(dave(NOW - 2 * HOUR)), Standing(dave(NOW - 60))
    roster = taken_back(store, c, hub)
    assert hub.stopped == []
    assert store.audit() == []
    take_in(c.picture, roster.servers)
    assert decide(c.picture).preempts == ()


def test_one_that_is_gone_is_not_stopped(store):
    c, hub = cluster(dave(NOW - 2 * HOUR)), Standing()
    taken_back(store, c, hub)
    assert hub.stopped == []


def test_while_the_hub_is_away_nothing_is_said_to_be_on_its_way(store):
    idle = dave(NOW - 2 * HOUR)
    c, hub = cluster(idle), Standing(idle)
    hub.away = True
    with pytest.raises(ServiceUnreachable):
        taken_back(store, c, hub)
    assert store.audit() == []
    assert len(decide(c.picture).preempts) == 1  # tried again


def test_what_only_says_that_somebody_is_there_wakes_nobody(store):
    rings: list[None] = []
    notebooks = Notebooks(store, Named(), None, lambda: rings.append(None))
    notebooks.give([dave(10 * HOUR)])
    assert len(rings) == 1
    notebooks.give([dave(10 * HOUR).model_copy(update={"last_activity": 11 * HOUR})])
    assert len(rings) == 1
    notebooks.give([])
    assert len(rings) == 2

"""Test elastic trainings in a real service: refusals, notes, and the state after a restart of the service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_backend.client import Client
from kernel_backend.engines.base import GangStatus
from kernel_backend.errors import Conflict, ImpossibleAsk, InvalidRequest
from kernel_backend.model.cluster.site_load import OtherRequest, SiteLoad
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Committed, Delivery
from kernel_backend.model.resources import Node
from kernel_backend.model.times import RankTimes, Split
from kernel_backend.scheduler.rules import Rules
from kernel_backend.service.state import site_loads
from kernel_backend.text import gang_text, table_row
from tests.api.served import HERE, SECOND, Served, StillEngine, paused, started, submit, token_of
from tests.support.world import until

FOUR = HERE.model_copy(update={"slots": 4, "cores": 4})
RULES = Rules(min_run=0.0, restarts=1.0)
UP_TO_4 = {"slots": 4, "least_slots": 1}
FIRST, SHRUNK, GROWN = (AttemptId(1, 1, number) for number in (1, 2, 3))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, StillEngine([FOUR]), rules=RULES)
    yield served
    served.stop()


def trains(served: Served, client: Client, key: AttemptId, step: int, step_s: float | None = None) -> None:
    """Let an attempt commit a checkpoint, and report the duration of a step."""
    whole = Split(steps=20, parts={"forward": 20 * step_s}) if step_s else Split()
    times = (RankTimes(rank=0, now="forward", whole=whole),)
    id = f"{step}-{key.number}"
    first = started().model_copy(update={"total_steps": 100_000})
    records = (first, Committed(number=2, at=5.0, id=id, step=step, epoch=1.0, bytes=9, seconds=0.1))
    client.deliver(key, token_of(served, key), Delivery(records=records, times=times))


def slots(client: Client, number: int = 1) -> int:
    return client.experiment(number).attempts[-1].slots


def asked_to_go(served: Served, client: Client, key: AttemptId) -> str:
    """Wait until a gang is asked to exit, and return the reason that its owner reads."""
    until(lambda: client.experiment(key.experiment).trials[0].state == "releasing", f"{key} is asked to exit")
    until(lambda: client.experiment(key.experiment).warnings, "it is told")
    return client.experiment(key.experiment).warnings[-1]


def test_it_shrinks_for_another_and_grows_again_and_neither_counts_as_a_failure(served: Served, client: Client) -> None:
    submit(client, **UP_TO_4, logical_workers=4, max_restarts=0)
    trains(served, client, FIRST, step=9)
    assert gang_text(client.experiment(1)) == "4 of 1..4 slots, torch"
    assert table_row(client.experiment(1), 0.0)[-2] == "4 of 1..4"
    submit(client, slots=2)
    shrinks = "attempt 1 shrinks: #2.1 is next in the queue; it goes on with fewer slots"
    assert asked_to_go(served, client, FIRST) == shrinks
    served.engine.step_aside(FIRST)
    until(lambda: SHRUNK in served.engine.jobs, "it goes on")
    until(lambda: AttemptId(2, 1, 1) in served.engine.jobs, "the other starts")
    assert (slots(client), slots(client, 2)) == (2, 2)
    assert len(served.engine.jobs[SHRUNK].placement[0].slots) == 2

    trains(served, client, SHRUNK, step=29, step_s=0.5)
    served.engine.end(AttemptId(2, 1, 1))
    grows = asked_to_go(served, client, SHRUNK)
    assert grows.startswith("attempt 2 grows: nobody waits for 2 more slots, expected to save ")
    served.engine.step_aside(SHRUNK)
    until(lambda: GROWN in served.engine.jobs, "it goes on")
    assert slots(client) == 4
    after = client.experiment(1).trials[0]
    assert (after.failures, after.attempt) == (0, 3)


def test_a_service_that_restarts_while_a_gang_shrinks_still_keeps_its_least_slots(tmp_path: Path) -> None:
    engine = StillEngine([FOUR])
    served = Served(tmp_path, engine, rules=RULES)
    client = served.client()
    submit(client, **UP_TO_4)
    trains(served, client, FIRST, step=9)
    submit(client, slots=3)
    asked_to_go(served, client, FIRST)
    submit(client, slots=1)
    client.close()
    served.stop()
    again = Served(tmp_path, engine, rules=RULES)
    client = again.client()
    try:
        engine.step_aside(FIRST)
        until(lambda: {SHRUNK, AttemptId(2, 1, 1)} <= engine.jobs.keys(), "both have started")
        assert (slots(client), slots(client, 2)) == (1, 3)
        assert client.experiment(3).state == "queued"
    finally:
        client.close()
        again.stop()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"per_slot_batch": True}, "--per-slot-batch exclude each other: the batch would change"),
        ({"auto_batch": {}}, "--batch-size auto exclude each other: the batch that fits depends"),
        ({"max_time": 60.0}, "--max-time exclude each other: it counts from the start of an attempt"),
        ({"slots": 2, "least_slots": 3}, "--slots 3..2: the least number of slots comes first"),
        ({"logical_workers": 2}, "4 slots asked, and --logical-workers 2"),
    ],
)
def test_what_excludes_a_change_of_slots_is_refused(served: Served, client: Client, options, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        submit(client, **(UP_TO_4 | options))


class SharedEngine(StillEngine):
    """Four slots of a site that others use, too; the site gives gangs their nodes when told."""

    def __init__(self) -> None:
        super().__init__([Node(name="s1", kind="cpu", address="s1", slots=4, pool="second")])
        self.caps = self.caps.model_copy(update={"places": False})
        self.load = SiteLoad(free={"s1": 4})

    async def site_load(self) -> SiteLoad:
        return self.load.model_copy(update={"at": time.time()})

    async def statuses(self) -> list[GangStatus]:
        pending = [GangStatus(key=key, phase="pending", reason="Slurm: Resources") for key in self.jobs]
        return [self.ended.get(each.key) or each for each in pending]


@contextmanager
def at_a_site(home: Path, site: StillEngine, **rules: float) -> Iterator[Client]:
    pools = {"second": SECOND.model_dump(exclude_defaults=True)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_loads, "EVERY_S", 0.0)
        served = Served(
            home,
            StillEngine([FOUR]),
            pools=pools,
            others={"second": site},
            rules=Rules(min_run=0.0, restarts=1.0, **rules),
        )
        client = served.client()
        try:
            yield client
        finally:
            client.close()
            served.stop()


def test_it_is_refused_where_others_cannot_be_seen_and_where_its_least_is_too_much(tmp_path: Path) -> None:
    site = SharedEngine()
    with at_a_site(tmp_path, site) as client:
        site.load = SiteLoad(problem="the site hides the jobs of other users", hidden=True)
        with pytest.raises(InvalidRequest, match="--pool second exclude each other: the site hides the jobs of other"):
            submit(client, **UP_TO_4, pool="second")
        with pytest.raises(ImpossibleAsk, match=r"8 slots requested; here has 4\. The most for one trial there: 4"):
            submit(client, slots=16, least_slots=8)
        assert submit(client, slots=16, least_slots=4).experiment.config.slot_range == "4..16"


def test_it_is_refused_where_gangs_are_their_owners_own_jobs(tmp_path: Path) -> None:
    site = StillEngine([Node(name="s1", kind="cpu", address="s1", slots=4, pool="second")])
    site.caps = site.caps.model_copy(update={"places": False})
    with at_a_site(tmp_path, site) as client, pytest.raises(InvalidRequest, match="gangs there are their owners' own"):
        submit(client, **UP_TO_4, pool="second")


def test_a_gang_starts_with_what_others_have_left_of_a_site(tmp_path: Path) -> None:
    site = SharedEngine()
    other = OtherRequest(name="job 31 of bob", slots=1)
    site.load = SiteLoad(free={"s1": 3}, waiting=(other,))
    with at_a_site(tmp_path, site) as client:
        submit(client, **UP_TO_4, pool="second")
        until(lambda: FIRST in site.jobs, "it starts")
        assert slots(client) == 2


def test_a_gang_that_its_site_does_not_give_its_slots_goes_on_with_its_least(tmp_path: Path) -> None:
    site = SharedEngine()
    with at_a_site(tmp_path, site, unplaced=0.5) as client:
        submit(client, **UP_TO_4, pool="second", max_restarts=0)
        until(lambda: client.experiment(1).trials[0].state == "releasing", "it is asked to give way")
        until(lambda: client.experiment(1).warnings, "it is told")
        says = "attempt 1 shrinks: the site has not given it 4 slots within 0 s; it goes on with fewer slots"
        assert client.experiment(1).warnings[-1] == says
        site.step_aside(FIRST)
        until(lambda: SHRUNK in site.jobs, "it goes on")
        assert slots(client) == 1
        assert client.experiment(1).trials[0].failures == 0


def test_resuming_makes_a_training_elastic_or_takes_that_back(served: Served, client: Client) -> None:
    submit(client, slots=2)
    with pytest.raises(Conflict, match="slots change only while experiment #1 is paused"):
        client.resume(1, 4, 1)
    paused(served, client, FIRST)
    overview = client.resume(1, 4, 1)
    assert overview.experiment.config.slot_range == "1..4"
    until(lambda: SHRUNK in served.engine.jobs, "it goes on")
    assert slots(client) == 4
    paused(served, client, SHRUNK)
    overview = client.resume(1, 2)
    assert overview.experiment.config.slot_range == "2"
    assert "with 2 slots instead of 4" in overview.warnings[-1]

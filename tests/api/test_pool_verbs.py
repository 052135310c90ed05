"""Test that pools are listed, added, replaced and removed, and that experiments are submitted to them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.client import Client
from kernel_backend.errors import Conflict, Forbidden, InvalidRequest, NotFound
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.cluster.pools import Pool, PoolSettings, PoolStatus
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.states import AttemptState
from tests.api.people import FakeHub
from tests.api.served import HERE, SECOND, Served, StillEngine, submit
from tests.support.world import until

SITE = StillEngine.caps.model_copy(update={"places": False})
ONE, TWO, THREE = (AttemptId(number, 1, 1) for number in (1, 2, 3))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    """Start or restart a service of this home with these settings."""
    running: list[Served] = []

    def start(**settings: Any) -> tuple[Served, Client]:
        for each in running:
            each.stop()
        running[:] = [Served(tmp_path, StillEngine(), **settings)]
        return running[0], running[0].client()

    yield start
    for each in running:
        each.stop()


def site(slots: int = 4) -> StillEngine:
    """Return an engine whose own queue chooses the nodes of gangs."""
    engine = StillEngine([HERE.model_copy(update={"name": "s1", "pool": "second", "slots": slots})])
    engine.caps = SITE
    return engine


def named(client: Client, name: str) -> PoolStatus:
    return next(each for each in client.pools() if each.name == name)


def reason(client: Client, number: int) -> str:
    wait = client.experiment(number).wait
    return wait.reason if wait is not None else ""


def test_a_pool_is_added_and_trains_next_to_this_machine(served: Served, client: Client):
    added = client.set_pool("second", SECOND)
    assert (added.name, added.engine, added.settings, added.configured) == ("second", "slurm", SECOND, False)
    until(lambda: named(client, "second").slots == 2, "its node is seen")
    submit(client, "there", slots=2, pool="second")
    submit(client, "here", slots=2)
    second = served.others["second"]
    until(lambda: ONE in second.jobs and TWO in served.engine.jobs, "each begins in its pool")
    assert (second.jobs[ONE].pool, served.engine.jobs[TWO].pool) == ("second", "")
    assert [(share.node, share.slots) for share in second.jobs[ONE].placement] == [("second-1", (0, 1))]
    assert [(each.name, each.used) for each in client.pools()] == [("local", 2), ("second", 2)]
    assert {each.name: each.pool for each in client.nodes()} == {"here": "local", "second-1": "second"}
    assert client.logs(1).text == "hello\nworld\n"
    second.end(ONE)
    until(lambda: client.experiment(1).state == "completed", "#1 ends by what its own engine says")
    assert [(entry.act, entry.on, entry.detail) for entry in client.audit()] == [
        ("pool", "pool second", "engine slurm, partition second"),
    ]


def test_a_pool_is_there_after_a_restart_and_has_its_gangs(serve: Any):
    served, client = serve()
    client.set_pool("second", SECOND)
    until(lambda: named(client, "second").slots == 2, "its node is seen")
    submit(client, "there", slots=2, pool="second")
    until(lambda: ONE in served.others["second"].jobs, "#1 begins")
    served, client = serve(others=served.others)
    assert named(client, "second").settings == SECOND
    served.others["second"].end(ONE)
    until(lambda: client.experiment(1).state == "completed", "#1 ends")


def test_a_pool_that_is_used_is_not_removed(served: Served, client: Client):
    client.set_pool("second", SECOND)
    until(lambda: named(client, "second").slots == 2, "its node is seen")
    for name in ("one", "two"):
        submit(client, name, slots=2, pool="second")
    with pytest.raises(Conflict, match="used by experiments that have not ended: #1, #2; stop them first"):
        client.remove_pool("second")
    until(lambda: served.others["second"].jobs, "a gang is there")
    for number in (1, 2):
        client.stop(number)
    served.others["second"].step_aside(AttemptId(1, 1, 1))  # else it has half a minute to do so
    until(lambda: all(client.experiment(number).ended for number in (1, 2)), "both have ended")
    assert client.remove_pool("second").name == "second"
    assert [each.name for each in client.pools()] == ["local"]
    assert client.audit()[0].act == "remove pool"
    with pytest.raises(InvalidRequest, match=r"--pool second: there is no such pool; there is local"):
        submit(client, pool="second")


def test_what_cannot_be_a_pool_is_refused_with_the_reason(served: Served, client: Client):
    with pytest.raises(InvalidRequest, match="name: that is the machine of the service itself"):
        client.set_pool("local", SECOND)
    with pytest.raises(Conflict, match="the pool local is the machine of the service itself"):
        client.remove_pool("local")
    with pytest.raises(InvalidRequest, match=r"name: must be up to 32 of a-z, 0-9, - and _, not 'G P U'"):
        client.set_pool("G P U", SECOND)
    client.set_pool("second", SECOND)
    with pytest.raises(NotFound, match=r"there is no pool secnd \(did you mean second\?\); there are local, second"):
        client.remove_pool("secnd")
    with pytest.raises(InvalidRequest, match=r"--pool secnd: there is no such pool \(did you mean second\?\)"):
        submit(client, pool="secnd")


def test_a_replaced_pool_says_in_the_audit_log_what_changed(served: Served, client: Client):
    client.set_pool("second", SECOND)
    client.set_pool("second", SECOND)
    client.set_pool("second", PoolSettings(engine="slurm", partition="a100", cpus_per_slot=4))
    assert [entry.detail for entry in client.audit()] == [
        "partition second -> a100, cpus_per_slot default -> 4",
        "engine slurm, partition second",
    ]


def test_pools_are_set_by_admins(tmp_path: Path):
    served = Served(tmp_path, StillEngine(), identity=FakeHub())
    try:
        dave, ada = served.client("dave"), served.client("ada")
        for change in (lambda: dave.set_pool("second", SECOND), lambda: dave.remove_pool("second")):
            with pytest.raises(Forbidden, match="by admins"):
                change()
        ada.set_pool("second", SECOND)
        assert [each.name for each in dave.pools()] == ["local", "second"]
        assert [(entry.who, entry.on) for entry in ada.audit()] == [("ada", "pool second")]
    finally:
        served.stop()


def test_a_configured_pool_is_changed_in_its_file_alone(serve: Any):
    _, client = serve(pools={"second": {"engine": "slurm", "partition": "a100"}}, configured_in="/etc/dl.py")
    found = named(client, "second")
    assert (found.configured, found.settings) == (True, PoolSettings(engine="slurm", partition="a100"))
    for change in (lambda: client.set_pool("second", SECOND), lambda: client.remove_pool("second")):
        with pytest.raises(Conflict, match=r"set in /etc/dl\.py: change c\.Daylight\.pools there, and restart"):
            change()
    assert client.audit() == []


def test_a_bad_configuration_takes_no_other_pool_down(serve: Any, caplog: pytest.LogCaptureFixture):
    bad = {"gpu": {"engine": "slurm", "partion": "a100"}, "second": {"engine": "slurm"}, "tpu": "a100"}
    served, client = serve(pools=bad)
    assert {each.name: each.problem for each in client.pools() if not each.nodes} == {
        "gpu": "partion: Extra inputs are not permitted, not 'a100' (did you mean partition?)",
        "tpu": 'settings: must be a mapping such as {"engine": "slurm"}, not \'a100\'',
    }
    assert "pool gpu cannot be used: partion: Extra inputs are not permitted, not 'a100'" in caplog.text
    submit(client, slots=2, pool="second")
    until(lambda: ONE in served.others["second"].jobs, "the other pool is used")
    with pytest.raises(Conflict, match="--pool gpu: pool gpu cannot be used now: partion: Extra inputs"):
        submit(client, pool="gpu")
    with pytest.raises(Conflict, match="set in the service's configuration"):
        client.set_pool("gpu", SECOND)


def test_a_stored_pool_gives_way_to_a_configured_one(serve: Any):
    _, client = serve()
    client.set_pool("second", SECOND)
    _, client = serve(pools={"second": {"engine": "slurm", "partition": "a100"}})
    assert named(client, "second").settings == PoolSettings(engine="slurm", partition="a100")
    _, client = serve()
    assert named(client, "second").settings == SECOND


def test_a_pool_that_breaks_takes_experiments_once_its_nodes_were_seen(served: Served, client: Client):
    second = served.make(Pool(name="second", settings=SECOND))
    there, second.there = second.there, []
    client.set_pool("second", SECOND)
    with pytest.raises(Conflict, match="pool second cannot be used now: its engine has named no nodes so far"):
        submit(client, pool="second")
    second.there = there
    until(lambda: named(client, "second").slots == 2, "its node is seen")
    second.broken = "the controller does not answer"
    until(lambda: named(client, "second").problem, "it breaks")
    submit(client, slots=2, pool="second")
    said = "next in pool second; pool second cannot be used now: OSError: the controller does not answer"
    until(lambda: reason(client, 1) == said, "it waits, and says why")
    submit(client, "here", slots=2)
    until(lambda: TWO in served.engine.jobs, "this machine is used")
    second.broken = ""
    until(lambda: ONE in second.jobs, "it begins once that is over")


def test_no_more_gangs_than_said_wait_in_the_queue_of_a_site(served: Served, client: Client):
    served.others["second"] = second = site()
    client.set_pool("second", PoolSettings(engine="slurm", most_waiting=1))
    until(lambda: named(client, "second").slots == 4, "its node is seen")
    for name in ("one", "two", "three"):
        submit(client, name, slots=1, pool="second")
    until(lambda: ONE in second.jobs, "the first is handed over")
    said = "next in pool second; 1 of 1 gangs (most_waiting) wait in the site's queue of pool second"
    until(lambda: reason(client, 2) == said, "the second says why it waits")
    assert reason(client, 3).startswith("2nd in pool second; 1 of 1 gangs (most_waiting)")
    (attempt,) = served.service._store.attempts(1, 1)
    assert (attempt.state, attempt.granted_at) == (AttemptState.PENDING, None)
    time.sleep(0.5)  # several rounds
    assert list(second.jobs) == [ONE]
    second.end(ONE)
    until(lambda: TWO in second.jobs, "the second is handed over")
    assert THREE not in second.jobs


def test_a_pool_is_checked_by_its_engine_for_admins_alone(served: Served, client: Client):
    client.set_pool("second", SECOND)
    found = client.check_pool("second", "/env/bin/python")
    assert (found.pool, [each.says for each in found.findings]) == ("second", ["/env/bin/python"])
    assert client.check_pool("second").findings[0].says == sys.executable
    with pytest.raises(NotFound, match=r"there is no pool secnd \(did you mean second\?\); there are local, second"):
        client.check_pool("secnd")
    with pytest.raises(Conflict, match="daylight doctor checks it"):
        client.check_pool("local")


class KeepingEngine(StillEngine):
    """Engine in which experiment #1 keeps an allocation."""

    keeps = True

    def allocations(self) -> list[HeldAllocation]:
        return [HeldAllocation(id="1-a", pool="second", experiment=1, slots=2)]

    async def give_back(self, id: str, why: str) -> None: ...


def test_allocations_are_listed_for_those_who_may_see_their_experiment(serve):
    engine = KeepingEngine([HERE.model_copy(update={"name": "s1", "pool": "second"})])
    served, _ = serve(identity=FakeHub(), others={"second": engine}, pools={"second": SECOND.model_dump()})
    clients = {name: served.client(name) for name in ("dave", "danielle", "eve", "ada")}
    until(lambda: named(clients["dave"], "second").slots == 2, "its node is seen")
    submit(clients["dave"], pool="second")
    seen = {name: [each.experiment for each in named(client, "second").allocations] for name, client in clients.items()}
    assert seen == {"dave": [1], "danielle": [1], "eve": [], "ada": [1]}
    for client in clients.values():
        client.close()

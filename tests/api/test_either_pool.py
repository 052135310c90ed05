"""Test experiments that may train in any of several pools."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.client import Client
from kernel_backend.errors import ImpossibleAsk, InvalidRequest
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.ids import AttemptId
from tests.api.served import HERE, SECOND, StillEngine, submit
from tests.api.test_pool_verbs import named, reason, site
from tests.support.world import until


def first(number: int, attempt: int = 1) -> AttemptId:
    """Return the key of the first attempt of an experiment's only trial."""
    return AttemptId(number, 1, attempt)


def attempts(client: Client, number: int) -> list[tuple[int, str, str | None]]:
    """Return number, pool and resume checkpoint of the displayed attempts."""
    return [(each.number, each.pool, each.resume_from) for each in client.experiment(number).attempts]


def test_the_first_pool_with_room_has_it_and_no_other(two_pools: Any):
    served, client = two_pools()
    for _ in range(3):
        submit(client, slots=2, pool="second,local")
    second = served.others["second"]
    until(lambda: first(1) in second.jobs and first(2) in served.engine.jobs, "each pool has one")
    until(lambda: reason(client, 3).startswith("second: next in queue; "), "the third waits in both")
    assert "; local: next in queue; 2 slots requested, 0 of 2 free" in reason(client, 3)
    assert [(each.pool, each.experiment) for each in client.queue()] == [("local", 3), ("second", 3)]
    assert [(each.name, each.used, each.waiting) for each in client.pools()] == [("local", 2, 1), ("second", 2, 1)]
    served.engine.end(first(2))
    until(lambda: first(3) in served.engine.jobs, "it begins where slots are free")
    second.end(first(1))
    until(lambda: client.experiment(1).ended, "the other pool is free")
    submit(client, "after", slots=2, pool="second")
    until(lambda: first(4) in second.jobs, "a later one begins there")
    assert list(second.jobs) == [first(4)], "the third was started once"


def test_after_a_fault_it_goes_on_in_the_pool_where_it_was(two_pools: Any):
    served, client = two_pools()
    submit(client, slots=2, pool="local")
    until(lambda: first(1) in served.engine.jobs, "this machine is full")
    submit(client, slots=2, pool="local,second")
    second = served.others["second"]
    until(lambda: first(2) in second.jobs, "it begins in the other pool")
    served.engine.end(first(1))
    until(lambda: client.experiment(1).ended, "this machine is free")
    second.jobs.pop(first(2))  # its gang is lost
    until(lambda: first(2, 2) in second.jobs, "it is started again where it was")
    assert [each[:2] for each in attempts(client, 2)] == [(1, "second"), (2, "second")]


def test_a_sites_queue_has_it_only_without_room_elsewhere(two_pools: Any):
    served, client = two_pools(others={"second": site()})
    submit(client, slots=2, pool="second,local")
    until(lambda: first(1) in served.engine.jobs, "a pool with free slots wins over a site's queue")
    submit(client, slots=2, pool="second,local")
    until(lambda: first(2) in served.others["second"].jobs, "else it is handed over")
    assert first(2) not in served.engine.jobs


def test_one_limit_counts_in_all_pools(two_pools: Any):
    served, client = two_pools()
    owner = submit(client, slots=2, pool="local,second").experiment.owner
    served.roster.users = {owner: Quota(limit=2)}
    submit(client, slots=2, pool="second,local")
    until(lambda: "your limit of 2 is in use" in reason(client, 2), "it waits for its limit")
    assert not served.others["second"].jobs


def test_each_pool_must_exist_and_one_must_be_able_to_hold_it(two_pools: Any):
    small = StillEngine([HERE.model_copy(update={"name": "small-1", "pool": "small", "slots": 1})])
    _, client = two_pools(pools={"second": SECOND.to_json(), "small": SECOND.to_json()}, others={"small": small})
    until(lambda: named(client, "small").slots, "its node is seen")
    with pytest.raises(InvalidRequest, match=r"--pool secnd: there is no such pool \(did you mean second\?\)"):
        submit(client, pool="local,secnd")
    with pytest.raises(ImpossibleAsk, match=r"pool small has 1.*pool second has 2"):
        submit(client, slots=3, pool="small,second")
    submit(client, slots=2, pool="small,second")
    until(lambda: client.experiment(1).state in ("starting", "running"), "it begins where it fits")

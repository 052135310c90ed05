"""Test that a gang gets only a free allocation of its own search that fits it and lasts long enough."""

from __future__ import annotations

from kernel_backend.engines.allocations.choice import Demand, choose, length
from kernel_backend.engines.slurm.parse import parse_limit
from kernel_backend.model.cluster.allocations import HeldAllocation

DEMAND = Demand(7, "/python", ("--nodes=1", "--ntasks=1"))
HOUR = 3600.0


def held(id: str, **fields) -> HeldAllocation:
    return HeldAllocation(id=id, pool="gpu", experiment=7, slots=1, **{"job": "1", "running": True} | fields)


def chosen(*of: HeldAllocation, demand: Demand = DEMAND) -> str:
    found = choose(demand, [(DEMAND, HOUR, each) for each in of], now=0.0)
    return found.id if found is not None else ""


def test_the_running_one_with_the_most_time_left_comes_first():
    assert chosen(held("waits", running=False), held("a", ends=1000.0), held("b", ends=3000.0)) == "b"
    assert chosen(held("waits", running=False)) == "waits"


def test_one_with_a_gang_or_one_that_is_given_back_is_not_free():
    assert chosen(held("a", gang="7.1-1"), held("b", closing="given back"), held("c", job="")) == ""


def test_one_too_close_to_its_end_is_left_out():
    assert chosen(held("a", ends=419.0)) == ""
    assert chosen(held("a", ends=421.0)) == "a"


def test_a_gang_of_another_search_interpreter_or_size_gets_none():
    for other in (
        DEMAND._replace(experiment=8),
        DEMAND._replace(python="/other"),
        DEMAND._replace(options=("--nodes=2",)),
    ):
        assert chosen(held("a"), demand=other) == ""


def test_no_more_time_is_requested_than_the_partition_allows():
    assert length(4 * HOUR, parse_limit("main|infinite\n")) == 4 * HOUR
    assert length(4 * HOUR, parse_limit("small|30:00\nmain*|1:00:00\n")) == HOUR
    assert length(4 * HOUR, parse_limit("")) == 4 * HOUR

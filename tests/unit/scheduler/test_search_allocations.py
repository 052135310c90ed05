"""Test which allocations searches give back: unused ones, and those that other gangs are entitled to."""

from __future__ import annotations

from dataclasses import replace

from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.scheduler.requests import RequestKey
from kernel_backend.scheduler.search_allocations import SearchOwner, given_back
from tests.support.clusters import Cluster, nodes

SEARCH = 7
ACTIVE = {SEARCH: SearchOwner("ada", "vision")}


def held(id: str = "7-a", **fields) -> HeldAllocation:
    """Return a running allocation of ada's search, in which a gang runs."""
    usual = {"job": "1", "running": True, "gang": "7.1-1", "slots": 2}
    return HeldAllocation(id=id, pool="site", experiment=SEARCH, **usual | fields)


def idle(id: str = "7-a", since: float = 0.0, **fields) -> HeldAllocation:
    return held(id, gang="", idle_since=since, **fields)


def site(**more) -> Cluster:
    return Cluster(*nodes(4, 2, pool="site"), **more)


def waiting(cluster: Cluster, owner: str, slots: int = 2, group: str = "") -> None:
    """Add a gang of this user that waits in the site's queue."""
    number = cluster.ask(owner, slots, group, pool="site")
    cluster.decide()
    key = RequestKey(number, 1)
    run = cluster.picture.runs[key]
    cluster.picture.let_go(key)
    cluster.picture.hold(replace(run, waiting=True))


def used(cluster: Cluster, owner: str, group: str) -> None:
    """Let this user hold slots from now on."""
    cluster.ask(owner, 2, group, pool="site")
    cluster.decide()


def back(cluster: Cluster, *of: HeldAllocation, active=ACTIVE) -> dict[str, str]:
    return given_back(cluster.picture, "site", of, active)


def test_an_idle_allocation_is_kept_while_nobody_else_waits():
    cluster = site()
    cluster.at(50.0)
    assert back(cluster, idle()) == {}


def test_the_allocations_of_a_search_that_ended_or_was_paused_are_given_back_with_their_gangs():
    assert back(site(), held(), idle("7-b"), active={}) == {
        "7-a": "search #7 does not go on",
        "7-b": "search #7 does not go on",
    }


def test_an_idle_allocation_is_given_back_once_others_wait_longer_than_a_decision_takes():
    cluster = site()
    waiting(cluster, "ben")
    cluster.at(1.0)
    assert back(cluster, idle()) == {}
    cluster.at(3.0)
    assert back(cluster, idle(), held("7-b")) == {"7-a": "others wait in pool site"}


def test_a_request_of_another_experiment_in_our_own_queue_counts_as_waiting():
    cluster = site()
    cluster.ask("ada", 100, pool="site")
    cluster.at(3.0)
    assert back(cluster, idle()) == {"7-a": "others wait in pool site"}


def test_what_waits_in_another_pool_takes_nothing():
    cluster = site()
    cluster.ask("ben", 1, pool="other")
    cluster.at(3.0)
    assert back(cluster, idle()) == {}


def test_a_request_that_no_trial_waits_for_is_withdrawn():
    cluster = site()
    cluster.at(3.0)
    assert back(cluster, idle(running=False)) == {"7-a": "no trial of #7 waits for it"}


def test_who_has_used_less_gets_room_after_a_minute_in_the_sites_queue_and_no_more_than_they_need():
    cluster = site()
    used(cluster, "ada", "vision")
    waiting(cluster, "ben", 2, "speech")
    cluster.at(59.0)
    assert back(cluster, held("7-a"), held("7-b")) == {}
    cluster.at(61.0)
    assert back(cluster, held("7-a"), held("7-b")) == {"7-a": "a gang of ben is ahead in the queue"}


def test_what_is_being_given_back_counts_as_room():
    cluster = site()
    used(cluster, "ada", "vision")
    waiting(cluster, "ben", 2, "speech")
    cluster.at(61.0)
    assert back(cluster, held("7-a", closing="it is given back"), held("7-b")) == {}


def test_within_a_group_the_users_shares_decide():
    cluster = site()
    used(cluster, "ada", "vision")
    waiting(cluster, "ben", 2, "vision")
    cluster.at(61.0)
    assert back(cluster, held()) == {"7-a": "a gang of ben is ahead in the queue"}


def test_who_has_used_more_waits_for_the_site():
    cluster = site()
    used(cluster, "ben", "speech")
    used(cluster, "ben", "speech")
    waiting(cluster, "ben", 2, "speech")
    cluster.at(61.0)
    assert back(cluster, held()) == {}

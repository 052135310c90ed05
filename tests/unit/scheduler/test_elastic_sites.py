"""Elastic gangs in pools that others use: they have what the site shows to be free, and give it back to who waits."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.model.cluster.site_load import UNKNOWN, OtherRequest, SiteLoad
from kernel_backend.model.resources import Share
from kernel_backend.scheduler.requests import RequestKey
from kernel_backend.scheduler.speedup import Progress, measured_progress
from tests.support.builders import attempt, share, trial
from tests.support.clusters import Cluster, nodes
from tests.unit.scheduler.test_elastic_sizes import QUICK, measured, times

UP_TO_4 = {"larger": (2, 3, 4)}


class Site(Cluster):
    """A pool whose site chooses the nodes of gangs."""

    def shows(self, *waiting: OtherRequest, at: float | None = None, **free: int) -> None:
        """The engine reads this load now, or at a time."""
        read = self.picture.at + 0.5 if at is None else at
        self.loaded(SiteLoad(at=read, free=free, waiting=waiting))

    def loaded(self, load: SiteLoad) -> None:
        self.picture.site_loads = {"local": load}

    def change(self, number: int, **changes: Any) -> None:
        self.picture.change(RequestKey(number, 1), **changes)

    def runs_on(self, number: int, **slots: int) -> None:
        """The site has given a gang these nodes."""
        shares = (Share(node=name, kind="cuda", address=name, slots=tuple(range(n))) for name, n in slots.items())
        self.change(number, actual=tuple(shares), waiting=False)


def another(slots: int, one_node: bool = False) -> OtherRequest:
    return OtherRequest(name="job 31 of bob", slots=slots, one_node=one_node)


def started(*waiting: OtherRequest, **free: int) -> Site:
    """ada's gang of 1 to 4 starts on two nodes of four slots."""
    c = Site(*nodes(2, 4))
    c.shows(*waiting, **free)
    c.ask("ada", 1, **UP_TO_4)
    return c


def at_four() -> Site:
    """ada's gang has four slots, all of n1, and has trained for long; the others are in use."""
    c = started(n1=4)
    assert c.decide() == ["1 starts on 4 of n1"]
    c.runs_on(1, n1=4)
    c.at(600)
    c.shows()
    return c


# Starts


def test_it_starts_with_what_the_site_shows_to_be_free():
    assert started(n1=2).decide() == ["1 starts on 2 of n1"]
    assert started(n1=1, n2=2).decide() == ["1 starts on 2 of n2 + 1 of n1"]
    assert started().decide() == ["1 starts on 1 of n1"], "the least waits in the site's queue"


def test_it_starts_with_its_least_where_the_load_is_not_known():
    for load in (UNKNOWN, SiteLoad(at=1.0, problem="Slurm does not answer")):
        c = started(n1=4, n2=4)
        c.loaded(load)
        assert c.decide() == ["1 starts on 1 of n1"]


@pytest.mark.parametrize(("other", "size"), [(1, 3), (2, 2), (6, 1)])
def test_what_others_wait_for_is_left_to_them(other: int, size: int):
    assert started(another(other), n1=4).decide() == [f"1 starts on {size} of n1"]


def test_others_that_no_node_of_the_pool_can_serve_are_no_reason():
    assert started(another(5, one_node=True), another(9), n1=4).decide() == ["1 starts on 4 of n1"]


def test_a_gang_of_ones_own_that_waits_in_the_sites_queue_comes_first():
    c = Site(*nodes(2, 4))
    c.shows(n1=1)
    c.ask("bob", 4)
    c.decide()
    c.change(1, waiting=True)
    c.ask("ada", 1, **UP_TO_4)
    assert c.decide() == ["2 starts on 1 of n2"]


def test_a_gang_that_the_load_does_not_show_yet_is_taken_off():
    c = Site(*nodes(2, 4))
    c.shows(n1=4, n2=2, at=-1.0)
    c.ask("bob", 3)
    c.decide()
    c.ask("ada", 1, **UP_TO_4)
    assert c.decide() == ["2 starts on 2 of n2 + 1 of n1"]


def test_whole_nodes_are_taken_whole():
    c = started()
    c.loaded(SiteLoad(at=1.0, free={"n1": 4, "n2": 4}, whole_nodes=True))
    assert c.decide() == ["1 starts on 4 of n1"]
    c = Site(*nodes(2, 4))
    c.loaded(SiteLoad(at=1.0, free={"n1": 4, "n2": 4}, whole_nodes=True))
    c.ask("ada", 1, larger=(2, 3))
    assert c.decide() == ["1 starts on 1 of n1"]


def test_nodes_that_an_autoscaler_would_add_are_not_for_elastic_gangs():
    future = nodes(1, 4, prefix="new")[0].model_copy(update={"future": True})
    c = Site(*nodes(1, 2), future)
    c.shows(n1=2)
    c.ask("ada", 1, **UP_TO_4)
    assert c.decide() == ["1 starts on 2 of n1"]


# Shrinking


def test_it_shrinks_for_others_where_that_helps_them():
    c = at_four()
    c.shows(another(3))
    assert c.decide() == ["1 shrinks: job 31 of bob waits for slots of pool local"]
    c.at(610)
    c.shows(another(3), n1=4)
    c.comes_back(1)
    assert c.decide() == ["1 starts on 1 of n1"]


def test_what_others_leave_it_gets_again_at_once():
    c = at_four()
    c.shows(another(2))
    c.decide()
    c.at(610)
    c.shows(n1=2)
    c.comes_back(1)
    assert c.decide() == ["1 starts on 2 of n1"]


def test_it_shrinks_for_nobody_whom_that_does_not_help():
    c = at_four()
    c.shows(another(4))
    assert c.decide() == [], "its least is its own"
    c.shows(another(4, one_node=True), n2=1)
    assert c.decide() == [], "no node would have four"
    c.shows(another(4), n2=1)
    assert c.decide() == ["1 shrinks: job 31 of bob waits for slots of pool local"]


def test_it_does_not_shrink_for_others_who_are_about_to_start():
    c = at_four()
    c.shows(another(2), n2=2)
    assert c.decide() == []


def test_it_shrinks_for_another_gang_in_the_sites_queue_but_not_for_one_that_has_its_nodes():
    c = at_four()
    c.ask("bob", 3)
    assert c.decide() == ["2 starts on 3 of n2"]
    c.change(2, waiting=True)
    c.shows()
    c.picture.placed = {RequestKey(2, 1)}
    assert c.decide() == []
    c.picture.placed = ()
    assert c.decide() == ["1 shrinks: #2.1 waits for slots of pool local"]


def test_it_is_left_alone_in_the_first_minutes_after_its_checkpoint():
    c = started(n1=4)
    c.decide()
    c.runs_on(1, n1=4)
    for seconds, decisions in ((100, []), (180, ["1 shrinks: job 31 of bob waits for slots of pool local"])):
        c.at(seconds)
        c.shows(another(2))
        assert c.decide() == decisions


def test_one_that_the_site_does_not_give_its_slots_takes_its_least():
    c = started(n1=4)
    c.decide()
    c.change(1, waiting=True)
    c.at(59)
    assert c.decide() == []
    c.at(60)
    c.picture.placed = {RequestKey(1, 1)}
    assert c.decide() == [], "its launchers are about to begin"
    c.picture.placed = ()
    assert c.decide() == ["1 shrinks: the site has not given it 4 slots within 60 s"]


# Growing


def at_one() -> Site:
    """ada's gang has one slot of n1, and has trained for long."""
    c = started()
    c.decide()
    c.runs_on(1, n1=1)
    c.at(600)
    measured(c, 1, QUICK._replace(step_times=((1, 0.4),)))
    return c


def test_it_grows_into_what_the_site_shows_to_be_free():
    c = at_one()
    c.shows(n2=1)
    (grows,) = c.decide()
    assert grows.startswith("1 grows: nobody waits for 1 more slot, ")
    c.at(610)
    c.shows(n1=1, n2=1)
    c.comes_back(1)
    assert c.decide() == ["1 starts on 1 of n1 + 1 of n2"]


def test_it_does_not_grow_where_others_wait_even_if_what_is_free_is_too_little_for_them():
    c = at_one()
    c.shows(another(3), n2=2)
    assert c.decide() == []
    c.shows(another(2), n2=2)
    assert c.decide() == [], "they are about to get it"
    c.loaded(UNKNOWN)
    assert c.decide() == []


def test_the_wait_in_a_sites_queue_is_part_of_what_a_restart_costs():
    first = attempt(1, (share((0,)),), created_at=0.0, granted_at=500.0)
    vain = attempt(2, created_at=1000.0, ended_at=1070.0)
    last = attempt(3, created_at=1075.0, granted_at=1085.0)
    running = trial(attempt=3, step=80, total_steps=100)
    found = measured_progress(running, [first, vain, last], [times(1, 20, 8.0), times(3, 40, 8.0)], at=1098.0)
    assert found is not None
    assert found.restart == pytest.approx(5.0 + 10.0 + 60.0), "its start, its wait, and a minute of the try in vain"
    found = measured_progress(trial(attempt=1, total_steps=100), [first], [times(1, 20, 8.0)], at=513.0)
    assert isinstance(found, Progress)
    assert found.restart == pytest.approx(5.0 + 60.0), "slots are free when it grows: a long wait says nothing of that"

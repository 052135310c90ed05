"""Test all rules of scheduling on clusters of a few nodes; docs/explanation/scheduling.md has the simple cases."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.cluster.quotas import Quota, parse_slot_hours
from kernel_backend.model.experiment import FIRST
from kernel_backend.model.states import Outcome
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.explain.explain import explain
from kernel_backend.scheduler.explain.feasibility import impossible
from kernel_backend.scheduler.explain.forecast import forecast
from kernel_backend.scheduler.order import in_order
from kernel_backend.scheduler.requests import RequestKey
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.run_lengths import Lengths, PastLengths
from kernel_backend.scheduler.usage import Meter
from tests.support.clusters import Cluster, nodes
from tests.torture import lateness
from tests.torture.schedules import play, shuffled

DAY = 86400.0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_a_random_history_is_as_it_should_be(seed):
    play(seed)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9))
def test_a_reservation_whose_time_is_known_is_not_late(seed):
    _, promises = lateness.play(seed)
    assert promises.late == []


# Use


@given(
    st.lists(st.tuples(st.floats(0.1, 5000), st.integers(0, 8)), min_size=1, max_size=20),
    st.floats(0, 5000),
)
def test_use_by_its_closed_form_is_the_sum_over_every_second(intervals, after):
    meter, half_life, now = Meter(1000.0, window=2000.0), 1000.0, 0.0
    history: list[tuple[float, float, int]] = []
    for seconds, slots in intervals:
        meter.hold(slots, now)
        history.append((now, now + seconds, slots))
        now += seconds
        meter.hold(-slots, now)
    now += after
    assert meter.held == 0
    decayed = window = 0.0
    rate = 0.6931471805599453 / half_life
    for begun, ended, slots in history:
        decayed += slots / rate * (2 ** (-(now - ended) / half_life) - 2 ** (-(now - begun) / half_life))
        window += slots * max(0.0, ended - max(begun, now - 2000.0))
    assert meter.decayed(now) == pytest.approx(decayed, rel=1e-9, abs=1e-6)
    assert meter.within(2000.0, now) == pytest.approx(window, rel=1e-9, abs=1e-6)


def test_a_history_is_taken_in_in_any_order():
    meter = Meter(DAY, window=DAY)
    meter.replay([(100.0, 200.0, 4), (0.0, None, 2), (50.0, 150.0, 1)])
    assert meter.held == 2
    assert meter.within(DAY, 300.0) == 2 * 300 + 4 * 100 + 100


def test_what_was_held_a_half_life_ago_counts_half():
    meter = Meter(DAY)
    meter.hold(8, 0.0)
    meter.hold(-8, 60.0)
    assert meter.decayed(60.0 + DAY) == pytest.approx(meter.decayed(60.0) / 2)
    assert meter.decayed(60.0) == pytest.approx(480.0, rel=1e-3)


def test_a_window_is_spelled_as_people_do():
    assert parse_slot_hours("500/7d").seconds == 500 * 3600
    assert parse_slot_hours("40 / 12h").window == 12 * 3600
    assert Quota.model_validate({"slot_hours": "2000/4w"}).slot_hours == parse_slot_hours("2000/4w")
    for wrong in ("500", "500/7", "0/7d", "-1/7d", "500/7y"):
        with pytest.raises(InvalidRequest, match="is no number of slot-hours"):
            parse_slot_hours(wrong)
    with pytest.raises(ValidationError, match="more than the limit of 4"):
        Quota(guarantee=8, limit=4)
    with pytest.raises(ValueError, match="half-life of 0"):
        Rules(half_life=0)


# Shares


def test_who_has_used_least_is_next_and_catches_up():
    c = Cluster(*nodes(1, 8))
    c.ask("ada", 8)
    c.decide()
    c.at(2 * 3600)
    for _ in range(4):
        c.ask("ada", 2), c.ask("bob", 2)
    c.ends(1)
    c.decide()
    assert {run.owner for run in c.picture.runs.values()} == {"bob"}


def test_a_user_of_two_groups_uses_the_part_of_the_one_in_which_he_asks():
    c = Cluster(*nodes(1, 4))
    c.ask("ada", 4, "vision")
    c.decide()
    c.at(3600)
    c.ends(1)
    vision, speech = c.ask("ada", 4, "vision"), c.ask("ada", 4, "speech")
    assert c.decide() == [f"{speech} starts on 4 of n1"]
    assert c.why(vision).startswith("next in queue")


def test_priorities_order_the_asks_of_one_user_too():
    c = Cluster(*nodes(1, 2), users={"ada": {"priority": 2}})
    c.ask("ada", 2), c.ask("ada", 2, priority=1), c.ask("ada", 2, priority=2)
    assert c.decide() == ["3 starts on 2 of n1"]
    c.ends(3)
    assert c.decide() == ["2 starts on 2 of n1"]


# Limits


def test_a_limit_of_a_group_counts_all_of_its_users():
    c = Cluster(*nodes(2, 8), groups={"vision": {"limit": 10}})
    c.ask("ada", 6, "vision"), c.ask("bob", 6, "vision"), c.ask("bob", 4, "vision"), c.ask("cy", 6)
    assert c.decide() == ["1 starts on 6 of n1", "4 starts on 6 of n2", "3 starts on 2 of n1 + 2 of n2"]
    assert c.why(2) == "next in queue; the limit of 10 of group vision is in use"


def test_who_asks_for_more_than_a_limit_leaves_hears_how_much_it_leaves():
    c = Cluster(*nodes(2, 8), users={"ada": {"limit": 10}})
    c.ask("ada", 6), c.ask("ada", 6)
    c.decide()
    assert c.why(2) == "next in queue; your limit of 10 leaves 4"


def test_an_ask_that_its_limit_stops_is_not_passed_for_ever_by_smaller_ones():
    c = Cluster(*nodes(2, 8), users={"ada": {"limit": 8}}, rules=Rules(starving=3600))
    c.ask("ada", 1)
    c.decide()
    large = c.ask("ada", 8)
    for half_hour in range(1, 5):  # there is always one that runs
        c.at(half_hour * 1800 + 1)
        before = c.running()
        c.ask("ada", 1)
        c.decide()
        c.ends(*before)
        c.decide()
        if large in c.running():
            break
    assert c.running() == [large]


def test_a_users_own_limit_reserves_nothing_of_the_group():
    c = Cluster(*nodes(2, 8), users={"ada": {"limit": 4}}, groups={"vision": {"limit": 8}})
    c.ask("ada", 4, "vision"), c.ask("ada", 4, "vision"), c.ask("bob", 1, "vision")
    c.decide()
    c.at(25 * 3600)
    other = c.ask("bob", 1, "vision")
    assert c.decide() == [f"{other} starts on 1 of n1"]
    assert c.why(2) == "next in queue; your limit of 4 is in use"


def test_used_up_hours_reserve_no_limit():
    c = Cluster(*nodes(2, 8), users={"ada": {"slot_hours": "4/30d"}}, groups={"vision": {"limit": 4}})
    c.ask("ada", 4, "vision")
    c.decide()
    c.at(2 * 3600)
    c.ends(1)
    c.ask("ada", 4, "vision")
    c.at(30 * 3600)
    other = c.ask("bob", 1, "vision")
    assert c.decide() == [f"{other} starts on 1 of n1"]


def test_what_its_pool_cannot_place_reserves_no_limit_elsewhere():
    c = Cluster(*nodes(1, 8), *nodes(1, 8, pool="b", prefix="b"), groups={"vision": {"limit": 4}})
    c.ask("ada", 3, "vision")
    c.decide()
    starving = c.ask("ada", 4, "vision", pool="b")
    c.picture.set_node(c.picture.nodes["b1"].model_copy(update={"drained": True}))
    c.at(25 * 3600)
    other = c.ask("bob", 1, "vision")
    assert c.decide() == [f"{other} starts on 1 of n1"]
    assert c.why(starving) == "next in pool b; the limit of 4 of group vision is in use"


def test_a_wait_for_a_limit_that_is_reserved_names_who_waits_for_it():
    c = Cluster(*nodes(1, 8), *nodes(1, 8, pool="b", prefix="b"), groups={"vision": {"limit": 4}})
    c.ask("ada", 3, "vision")
    c.decide()
    starving = c.ask("ada", 4, "vision", pool="b")
    c.at(25 * 3600)
    other = c.ask("bob", 1, "vision")
    assert c.decide() == []
    assert c.why(other) == f"next in queue; what its limit leaves is reserved for #{starving}.1"
    c.ends(1)
    assert c.decide() == [f"{starving} starts on 4 of b1"]


def test_slots_of_two_kinds_are_not_added_up_in_a_reason():
    c = Cluster(*nodes(1, 2), *nodes(1, 2, kind="cpu", prefix="c"))
    c.ask("ada", 1), c.ask("ada", 1), c.ask("ada", 1)
    c.decide()
    c.ends(1)
    waits = c.ask("bob", 2)
    assert c.decide() == []
    assert c.why(waits) == "next in queue; 2 slots requested, 1 of 2 free"


def test_what_is_above_a_lowered_limit_goes_youngest_first_and_once():
    c = Cluster(*nodes(1, 8))
    for at in range(4):
        c.at(float(at))
        c.ask("ada", 2, "vision")
        c.decide()
    c.at(600)
    c.picture.groups.set("vision", Quota(limit=5))
    assert [line.split(" goes")[0] for line in c.decide()] == ["4", "3"]
    assert c.decide() == []
    c.comes_back(3, 4)
    assert c.decide() == []
    assert c.running() == [1, 2]


# Guarantees


def test_a_guarantee_is_met_within_the_rest_of_the_minimum_run_and_the_grace():
    c = Cluster(*nodes(1, 8), groups={"vision": {"guarantee": 8}})
    for _ in range(8):
        c.ask("bob", 1, preemptible=True)
    c.decide()
    c.at(10)
    asked = [c.ask("ada", 1, "vision") for _ in range(8)]
    for late in range(4):
        c.ask(f"late{late}", 1, preemptible=True)
    c.decide()
    c.at(60 + 120)
    assert len(c.decide()) == 8
    c.comes_back(*range(1, 9))
    c.decide()
    assert c.running() == asked


def test_nobody_is_put_aside_where_it_makes_no_room():
    c = Cluster(*nodes(2, 4), groups={"vision": {"guarantee": 4}})
    c.ask("bob", 2), c.ask("cy", 2), c.ask("bob", 2), c.ask("cy", 2)
    c.decide()
    c.at(1000)
    for run in list(c.picture.runs.values()):
        if run.key.experiment in (1, 3):
            c.picture.change(run.key, committed=None)  # no checkpoint yet
    c.ask("ada", 4, "vision", one_node=True)
    assert c.decide() == []
    c.at(1200)
    assert len(c.decide()) == 2


def test_a_loan_is_taken_back_from_the_youngest_and_no_more_than_needed():
    c = Cluster(*nodes(1, 8), groups={"vision": {"guarantee": 4}})
    for at, slots in enumerate((2, 4, 2)):
        c.at(float(at))
        c.ask("bob", slots)
        c.decide()
    c.at(600)
    c.ask("ada", 4, "vision")
    # The youngest gives 2, the next 4: with these 4 the youngest need not go.
    assert c.decide() == ["2 goes: #4.1 is within a guarantee"]


def test_what_is_within_a_guarantee_is_nobodys_to_take():
    c = Cluster(*nodes(1, 8), groups={"vision": {"guarantee": 4}, "speech": {"guarantee": 4}})
    c.ask("ada", 4, "vision"), c.ask("bob", 4, "speech")
    c.decide()
    c.at(600)
    c.ask("ada", 4, "vision"), c.ask("bob", 4, "speech")
    assert c.decide() == []


# Reservations and backfill


def stream(c: Cluster, hours: int, **small: object) -> list[int]:
    """Return five one-slot trainings of ten minutes at a time, each of which is followed by another user's."""
    seen: list[int] = []
    for minute in range(0, 60 * hours, 2):
        c.at(60.0 * minute + 1)
        over = [key for key, run in c.picture.runs.items() if run.slots == 1 and run.since + 600 <= c.picture.at]
        c.ends(*(key.experiment for key in over if c.picture.runs[key].leaving is None))
        c.comes_back(*(key.experiment for key, run in list(c.picture.runs.items()) if run.leaving is not None))
        for nth in range(3):
            c.ask(f"new{minute}-{nth}", 1, **small)
        c.decide()
        seen = c.running()
        if any(run.slots > 1 for run in c.picture.runs.values()):
            break
    return seen


@pytest.mark.parametrize("small", [{}, {"preemptible": True}, {"max_time": 600.0}, {"max_time": 600.0, "priority": 0}])
def test_a_gang_starts_however_many_small_ones_keep_coming(small):
    c = Cluster(*nodes(2, 4))
    for _ in range(8):
        c.ask("first", 1, **small)
    c.decide()
    c.at(0.5)
    gang = c.ask("ada", 8)
    assert gang in stream(c, 3, **small)


def test_a_line_that_starves_is_served_though_others_always_have_the_smaller_share():
    c = Cluster(*nodes(1, 8), rules=Rules(starving=2 * 3600))
    c.ask("ada", 8)
    c.decide()
    c.at(3600)
    mine, now = c.ask("ada", 8), 3600.0
    c.ends(1)
    while mine not in c.running() and now < 10 * 3600:
        now += 600
        c.at(now)
        c.ask(f"new{now}", 8)
        c.ends(*c.running())
        c.decide()
    assert mine in c.running()
    assert now <= 3600 + 2 * 3600 + 1200


def test_who_passed_and_has_no_checkpoint_yet_does_not_put_off_a_reservation():
    c = Cluster(*nodes(1, 8))
    c.ask("ada", 6, max_time=3600.0), c.ask("bob", 8), c.ask("cy", 1, max_time=22 * 3600.0, preemptible=True)
    assert c.decide() == ["1 starts on 6 of n1", "3 starts on 1 of n1"]
    c.at(30)
    c.ask("di", 1, max_time=21 * 3600.0)
    assert c.decide() == []
    c.at(3600)
    c.ends(1)
    assert c.decide() == ["3 goes: #2.1 is next in the queue"]
    c.comes_back(3)
    assert c.decide()[0] == "2 starts on 8 of n1"


def test_gangs_that_end_together_are_counted_together():
    c = Cluster(*nodes(1, 8))
    c.ask("ada", 3, max_time=3600.0), c.ask("bob", 4, max_time=3600.0), c.ask("cy", 4), c.ask("di", 1)
    # After an hour seven slots are free, of which cy's four leave room for di's whenever it ends.
    assert c.decide() == ["1 starts on 3 of n1", "2 starts on 4 of n1", "4 starts on 1 of n1"]


def test_a_decision_does_not_depend_on_the_order_of_runs():
    c = Cluster(*nodes(1, 8))
    c.ask("ada", 3, max_time=3600.0), c.ask("bob", 4, max_time=3600.0)
    c.decide()
    c.ask("cy", 4), c.ask("di", 1)
    decisions = decide(c.picture)
    assert all(decide(shuffled(c.picture, random.Random(seed))) == decisions for seed in range(8))


def behind_a_long_run(risk: float = 0.05) -> Cluster:
    """Return a gang that waits for all of eight slots, six of which hold trainings that take ten hours."""
    c = Cluster(*nodes(1, 8), rules=Rules(risk=risk))
    for nth in range(99):
        c.picture.lengths.add("long", 6, 0.0, 36000.0 + nth, Outcome.OK)
        c.picture.lengths.add("short", 1, 0.0, 600.0 + nth, Outcome.OK)
    c.ask("long", 6)
    c.decide()
    c.at(60)
    c.ask("gang", 8)
    c.decide()
    c.at(120)
    return c


def test_who_has_always_been_brief_passes_a_reservation_that_is_far_away():
    c = behind_a_long_run()
    c.ask("new", 1), c.ask("long", 1), c.ask("short", 1)
    assert c.decide() == ["5 starts on 1 of n1"]
    c.at(36000 - 300)
    c.ends(5)
    c.ask("short", 1)
    assert c.decide() == []  # the long one may end in the next minutes


def test_nobody_passes_by_a_forecast_where_no_risk_is_taken():
    c = behind_a_long_run(risk=0.0)
    c.ask("short", 1)
    assert c.decide() == []


def test_those_who_pass_by_a_forecast_share_one_risk():
    c = behind_a_long_run(risk=0.03)  # of two with one in a hundred each, which grows as they run
    c.ask("short", 1), c.ask("short", 1)
    assert len(c.decide()) == 1
    assert c.decide() == []
    c.at(900)
    c.ends(*(number for number in c.running() if number > 2))
    assert len(c.decide()) == 1


def test_a_gang_that_starves_is_passed_by_no_forecast():
    c = behind_a_long_run()
    for nth in range(999):
        c.picture.lengths.add("long", 6, 0.0, 300 * 3600.0 + nth, Outcome.OK)
    c.at(25 * 3600)
    c.ask("short", 1)
    assert c.decide() == []


def test_how_likely_a_run_lasts_is_told_by_past_runs_of_its_user_and_size():
    lengths = PastLengths()
    assert lengths.chance_to_last("ada", 1, 0.0, 60.0) == lengths.chance_to_end("ada", 1, 0.0, 60.0) == 1.0
    for seconds in range(100, 1000, 100):
        lengths.add("ada", 1, 0.0, float(seconds), Outcome.OK)
    lengths.add("ada", 1, 0.0, 9999.0, Outcome.RELEASED)  # it was preempted: how long it takes is not known
    assert lengths.chance_to_last("ada", 1, 0.0, 500.0) == 5 / 10
    assert lengths.chance_to_last("ada", 1, 0.0, 500.0, others=2) == 7 / 12
    assert lengths.chance_to_last("ada", 1, 500.0, 200.0) == 3 / 5
    assert lengths.chance_to_end("ada", 1, 500.0, 200.0) == 3 / 5
    assert lengths.chance_to_last("ada", 2, 0.0, 500.0) == 1.0
    for _ in range(500):
        lengths.add("ada", 1, 0.0, 50.0, Outcome.OK)
    assert lengths.chance_to_last("ada", 1, 0.0, 500.0) == 1 / 501  # those of long ago are forgotten


def test_a_gang_on_one_node_keeps_that_node_and_no_other():
    c = Cluster(*nodes(2, 4))
    c.ask("ada", 3, one_node=True), c.ask("bob", 2, one_node=True), c.ask("cy", 4, one_node=True)
    c.decide()
    assert c.picture.reservations[0].key == RequestKey(3, 1)
    kept = c.picture.reservations[0].node
    c.ask("di", 1), c.ask("di", 1), c.ask("di", 1)
    c.decide()
    other = {"n1": "n2", "n2": "n1"}[kept]
    assert c.picture.free[other] == []
    assert len(c.picture.free[kept]) > 0


def test_a_reservation_stays_with_its_ask_through_a_crash():
    c = Cluster(*nodes(1, 4))
    c.ask("ada", 2), c.ask("bob", 4), c.ask("cy", 2)
    c.decide()
    c.at(600)
    c.ends(1)
    assert c.decide() == ["2 starts on 4 of n1"]
    c.at(700)
    c.comes_back(2)
    c.ask("new", 4)
    assert c.picture.reservations[0].key == RequestKey(2, 1)
    assert c.decide() == ["2 starts on 4 of n1"]


def test_an_ask_that_rests_after_a_crash_holds_nobody_up_and_keeps_its_place():
    c = Cluster(*nodes(1, 4))
    c.ask("ada", 4), c.ask("ada", 2)
    c.decide()
    c.at(100)
    crashed = c.picture.runs[RequestKey(1, 1)]
    again = replace(c._asks[1], failed_at=100.0, rest=8.0)
    c.picture.let_go(crashed.key, again)
    assert c.decide() == ["2 starts on 2 of n1"]
    c.at(108)
    c.ends(2)
    c.ask("ada", 2)
    assert c.decide() == ["1 starts on 4 of n1"]


def test_a_node_that_is_drained_goes_on_and_starts_nothing_new():
    c = Cluster(*nodes(2, 4))
    c.ask("ada", 2)
    c.decide()
    c.picture.set_node(c.picture.nodes["n1"].model_copy(update={"drained": True}))
    c.ask("ada", 4), c.ask("ada", 2)
    assert c.decide() == ["2 starts on 4 of n2"]
    assert c.running() == [1, 2]
    assert c.why(3) == "next in queue; 2 slots requested, 0 of 8 free; 4 slots drained or away"


# Asks that are impossible


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"slots": 24}, "24 slots requested; pool a100 has 16. The most for one trial there: 16."),
        (
            {"slots": 9, "one_node": True},
            "9 slots requested on one node; pool a100 has 16. The most for one trial there: 8.",
        ),
        (
            {"slots": 9, "excluded": frozenset({"n2"})},
            "9 slots requested; pool a100 without n2 has 8. The most for one trial there: 8.",
        ),
        ({"slots": 1, "pool": "h100"}, "1 slot requested; pool h100 has 0. The most for one trial there: 0."),
        (
            {"slots": 6, "owner": "ada"},
            "6 slots requested; you may have 4 in one trial. The most for one trial there: 4.",
        ),
        (
            {"slots": 6, "group": "v"},
            "6 slots requested; group v may have 5 in one trial. The most for one trial there: 5.",
        ),
    ],
)
def test_what_can_never_be_met_says_what_can(more, reason):
    c = Cluster(*nodes(2, 8, pool="a100"), users={"ada": {"max_slots_per_trial": 4}}, groups={"v": {"limit": 5}})
    number = c.ask(**({"owner": "bob", "pool": "a100"} | more))
    found = impossible(c.picture, c._asks[number])
    assert found is not None
    assert found.reason == reason
    later = c.ask("cy", 2, pool="a100")
    assert c.decide() == [f"{later} starts on 2 of n1"]
    assert c.why(number).startswith(reason)


# What a wait says


def test_slots_that_are_kept_for_a_guarantee_say_so():
    c = Cluster(*nodes(1, 8), groups={"vision": {"guarantee": 4}})
    c.ask("bob", 6)
    c.decide()
    c.at(10)
    c.ask("ada", 4, "vision"), c.ask("cy", 2)
    assert c.decide() == []
    assert c.why(3) == "2nd in queue; slots are reserved for the guarantee of group vision"


def test_an_estimate_follows_from_ends_that_are_known_and_from_past_runs():
    c = Cluster(*nodes(1, 4))
    c.ask("ada", 4, max_time=1800), c.ask("bob", 4), c.ask("cy", 4)
    c.decide()
    c.at(600)
    second, third = c._asks[2], c._asks[3]
    assert explain(c.picture, second).estimate == 1200
    assert explain(c.picture, third).estimate is None
    lengths = {"bob": Lengths(60, 600, 3600)}
    assert explain(c.picture, third, lengths).estimate == 1800
    assert forecast(c.picture, [second], third, lengths) == (1260, 1800, 4800)


def test_the_rest_of_a_limit_that_is_kept_for_another_says_so():
    c = Cluster(*nodes(1, 4), *nodes(1, 8, pool="b", prefix="b"), groups={"vision": {"guarantee": 1, "limit": 3}})
    c.ask("bob", 4)
    c.decide()
    guaranteed, other = c.ask("ada", 1, "vision"), c.ask("ada", 3, "vision", pool="b")
    assert c.decide() == []
    takes = "; the guarantee of group vision takes slots back from gangs of others that have trained for 2 min"
    assert c.why(guaranteed) == f"next in queue; 1 slot requested, 0 of 4 free{takes}"
    assert c.why(other) == "next in pool b; what its limit leaves is reserved for #2.1"


@pytest.mark.parametrize(
    ("reader", "hours", "rival", "never"),
    [
        ("ada", "you have used 16 of 16 slot-hours in 1 days", "another's training", "you may have 8 in one trial."),
        (
            "mate",
            "its owner has used up the slot-hours",
            "another's training",
            "its owner may have fewer in one trial.",
        ),
        ("admin", "ada has used 16 of 16 slot-hours in 1 days", "#3.1", "ada may have 8 in one trial."),
    ],
)
def test_a_reader_learns_nothing_of_anothers_numbers(reader, hours, rival, never):
    c = Cluster(
        *nodes(1, 8),
        *nodes(1, 16, pool="b", prefix="b"),
        users={"ada": {"slot_hours": "16/1d", "max_slots_per_trial": 8}, "bob": {"guarantee": 1, "limit": 3}},
    )
    person = Person(name=reader, groups=("vision",), admin=reader == "admin")
    c.ask("ada", 8, "vision")
    c.decide()
    c.at(2 * 3600)
    c.ask("ada", 1, "vision"), c.ask("bob", 1, "speech"), c.ask("bob", 3, "vision", pool="b")
    c.ask("ada", 9, "vision", pool="b")
    assert explain(c.picture, c._asks[2], reader=person).reason.endswith(f"; {hours}")
    assert explain(c.picture, c._asks[4], reader=person).reason.endswith(f"leaves is reserved for {rival}")
    assert explain(c.picture, c._asks[5], reader=person).reason.startswith(f"9 slots requested; {never}")


def test_what_is_kept_for_one_is_not_before_those_of_his_line_who_come_back():
    c = Cluster(*nodes(1, 2))
    c.ask("ada", 1), c.ask("ada", 1), c.ask("ada", 1)
    c.decide()
    assert c.picture.reservations[0].key == RequestKey(3, 1)
    c.at(60)
    c.comes_back(1, 2)
    assert c.decide() == ["1 starts on 1 of n1", "2 starts on 1 of n1"]
    assert c.why(3) == "next in queue; 1 slot requested, 0 of 2 free"


# What an admin puts first


def test_who_is_put_first_is_ahead_of_guarantees_reservations_and_priorities():
    c = Cluster(*nodes(1, 4), users={"cy": {"priority": 9}}, groups={"vision": {"guarantee": 4}})
    c.ask("bob", 4)
    c.decide()
    c.ask("di", 4)
    c.decide()  # something is kept for her
    c.ask("ada", 4, "vision"), c.ask("cy", 4, priority=9), c.ask("eve", 4, priority=FIRST, by_admin=True)
    assert [request.owner for request in in_order(c.picture, "local")] == ["eve", "ada", "di", "cy"]
    c.ends(1)
    assert c.decide() == ["5 starts on 4 of n1"]


def test_what_was_kept_by_a_priority_that_is_taken_back_is_kept_no_more():
    c = Cluster(*nodes(1, 4))
    c.ask("ada", 4)
    c.decide()
    c.at(60)
    c.ask("bob", 4), c.ask("cy", 4)
    c.decide()
    kept = c.picture.reservations
    assert [each.key for each in kept] == [RequestKey(2, 1)]
    c.asks_with(3, FIRST)
    c.decide()
    assert {each.key for each in c.picture.reservations} == {RequestKey(2, 1), RequestKey(3, 1)}
    c.asks_with(3, 0, by_admin=False)
    assert [request.owner for request in in_order(c.picture, "local")] == ["bob", "cy"]
    c.decide()
    assert c.picture.reservations == kept
    c.asks_with(2, FIRST)
    c.decide()
    c.asks_with(2, 0, by_admin=False)
    c.decide()
    assert c.picture.reservations == kept  # what it had before it was put first


def test_who_was_put_first_last_is_first():
    c = Cluster(*nodes(1, 1))
    c.ask("ada", 1, priority=FIRST, by_admin=True), c.ask("bob", 1, priority=FIRST + 1, by_admin=True)
    assert c.decide() == ["2 starts on 1 of n1"]


def test_what_becomes_free_is_kept_for_who_was_put_first():
    c = Cluster(*nodes(1, 4))
    c.ask("ada", 2), c.ask("bob", 2)
    c.decide()
    c.ask("eve", 4, priority=FIRST, by_admin=True), c.ask("cy", 2, preemptible=True)
    c.at(7200)  # however long that is: nobody passes
    c.ends(1)
    assert c.decide() == []
    c.ends(2)
    assert c.decide() == ["3 starts on 4 of n1"]


def test_limits_count_for_who_was_put_first_and_he_is_in_nobodys_way():
    c = Cluster(*nodes(1, 4), users={"eve": {"limit": 1}})
    c.ask("eve", 1)
    c.decide()
    c.ask("eve", 1, priority=FIRST, by_admin=True), c.ask("bob", 3)
    assert c.decide() == ["3 starts on 3 of n1"]
    assert c.why(2) == "next in queue; your limit of 1 is in use"


def test_a_priority_that_an_admin_gave_is_lowered_by_no_quota():
    c = Cluster(*nodes(1, 1))
    c.ask("ada", 1), c.ask("bob", 1, priority=5), c.ask("cy", 1, priority=3, by_admin=True)
    assert c.decide() == ["3 starts on 1 of n1"]
    assert [request.owner for request in in_order(c.picture, "local")] == ["ada", "bob"]

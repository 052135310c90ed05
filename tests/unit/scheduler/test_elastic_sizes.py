"""Test the sizes of elastic gangs: they use slots that no request needs, return them, and grow if that pays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.times import AttemptTimes, RankTimes, Split
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.elastic import divided, larger_sizes
from kernel_backend.scheduler.placement import Capacity
from kernel_backend.scheduler.requests import RequestKey, SlotRequest
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.speedup import Progress, measured_progress, saved
from tests.support.builders import attempt, share, trial
from tests.support.clusters import Cluster, nodes

UP_TO_4 = {"larger": (2, 3, 4)}
QUICK = Progress(left=3600.0, elapsed=600.0, restart=10.0, step_times=((1, 0.4), (2, 0.2)))


def measured(c: Cluster, number: int, progress: Progress = QUICK) -> None:
    c.picture.change(RequestKey(number, 1), progress=progress)


def size(c: Cluster, number: int) -> int:
    return c.picture.runs[RequestKey(number, 1)].slots


def at_two_of_four() -> Cluster:
    """Return a cluster in which ada's gang has two slots of 1 to 4, and two more slots have become free."""
    c = Cluster(*nodes(1, 4))
    c.ask("bob", 2), c.ask("ada", 1, **UP_TO_4)
    assert c.decide() == ["1 starts on 2 of n1", "2 starts on 2 of n1"]
    c.at(600)
    c.ends(1)
    return c


# Starts


def test_two_that_start_together_divide_what_is_free():
    c = Cluster(*nodes(1, 6))
    c.ask("ada", 1, **UP_TO_4), c.ask("bob", 1, **UP_TO_4)
    assert c.decide() == ["1 starts on 3 of n1", "2 starts on 3 of n1"]


def test_what_a_limit_keeps_from_one_the_other_gets():
    c = Cluster(*nodes(1, 6), users={"ada": {"limit": 2}})
    c.ask("ada", 1, **UP_TO_4), c.ask("bob", 1, **UP_TO_4)
    assert c.decide() == ["1 starts on 2 of n1", "2 starts on 4 of n1"]


@pytest.mark.parametrize("quota", [{"limit": 2}, {"max_slots_per_trial": 2}])
def test_quotas_bind_what_is_beyond_the_least(quota):
    c = Cluster(*nodes(1, 4), users={"ada": quota})
    c.ask("ada", 1, **UP_TO_4)
    assert c.decide() == ["1 starts on 2 of n1"]


def test_nothing_beyond_the_least_is_taken_while_somebody_waits():
    c = Cluster(*nodes(1, 4))
    c.ask("bob", 2), c.ask("cy", 4), c.ask("ada", 1, max_time=None, preemptible=True, **UP_TO_4)
    assert c.decide() == ["1 starts on 2 of n1", "3 starts on 1 of n1"]


def test_who_waits_behind_a_limit_of_his_own_waits_for_no_slots():
    c = Cluster(*nodes(1, 4), users={"bob": {"limit": 1}})
    c.ask("bob", 1), c.ask("bob", 1), c.ask("ada", 1, **UP_TO_4)
    assert c.decide() == ["1 starts on 1 of n1", "3 starts on 3 of n1"]


def test_for_one_whose_environment_is_being_built_slots_stay_free():
    c = Cluster(*nodes(1, 4))
    c.ask("bob", 2, preparing="its environment is being built"), c.ask("ada", 1, **UP_TO_4)
    assert c.decide() == ["2 starts on 1 of n1"]


def test_a_gang_is_placed_anew_at_its_size_on_as_few_nodes_as_can_be():
    c = Cluster(*nodes(1, 1, prefix="a"), *nodes(1, 4, prefix="b"))
    c.ask("ada", 1, **UP_TO_4)
    assert c.decide() == ["1 starts on 4 of b1"]


def test_a_gang_on_one_node_is_as_large_as_a_node_has_free():
    c = Cluster(*nodes(2, 3))
    c.ask("ada", 1, one_node=True, **UP_TO_4)
    assert c.decide() == ["1 starts on 3 of n1"]


def test_a_wait_names_both_numbers():
    c = Cluster(*nodes(1, 4))
    c.ask("bob", 4), c.ask("ada", 2, larger=(3, 4))
    c.decide()
    assert c.why(2) == "next in queue; 2 to 4 slots requested, 0 of 4 free"


# Shrinking


def test_a_single_slot_is_on_its_way():
    c = Cluster(*nodes(1, 2))
    c.ask("ada", 1, larger=(2,))
    c.decide()
    c.at(600)
    c.ask("bob", 1)
    c.decide()
    assert c.why(2).endswith("; 1 slot on its way")


def test_it_shrinks_for_whoever_waits_and_keeps_its_least_for_itself():
    c = Cluster(*nodes(1, 4))
    c.ask("ada", 1, **UP_TO_4)
    c.decide()
    c.at(600)
    c.ask("bob", 2), c.ask("cy", 2)
    assert c.decide() == ["1 shrinks: #2.1 is next in the queue"]
    assert c.why(2).endswith("; 3 slots on their way")
    c.comes_back(1)
    assert c.decide() == ["1 starts on 1 of n1", "2 starts on 2 of n1"]
    assert c.waiting() == [3], "the slot that is left is too few, and no one's surplus"


def test_it_shrinks_for_nobody_whom_that_does_not_help():
    c = Cluster(*nodes(1, 4))
    c.ask("ada", 1, **UP_TO_4)
    c.decide()
    c.at(600)
    c.ask("bob", 4)
    assert c.decide() == []


def test_it_is_left_alone_in_the_first_minutes_after_its_checkpoint():
    c = Cluster(*nodes(1, 4))
    c.ask("ada", 1, **UP_TO_4)
    c.decide()
    c.at(100)
    c.ask("bob", 2)
    assert c.decide() == []
    c.at(180)
    assert c.decide() == ["1 shrinks: #2.1 is next in the queue"]


def test_a_guarantee_is_met_by_shrinking_before_anybody_is_preempted_whole():
    c = Cluster(*nodes(1, 8), groups={"vision": {"guarantee": 4}})
    c.ask("bob", 4), c.ask("cy", 1, **UP_TO_4)
    c.decide()
    c.at(600)
    c.ask("ada", 3, "vision")
    assert c.decide() == ["2 shrinks: #3.1 is within a guarantee"]


def test_one_that_borrows_is_preempted_whole_where_its_surplus_is_not_enough():
    c = Cluster(*nodes(1, 4), groups={"vision": {"guarantee": 4}})
    c.ask("cy", 1, **UP_TO_4)
    c.decide()
    c.at(600)
    c.ask("ada", 4, "vision")
    assert c.decide() == ["1 goes: #2.1 is within a guarantee"]
    c.comes_back(1)
    assert c.decide() == ["2 starts on 4 of n1"]


def test_the_least_of_one_within_a_guarantee_is_not_borrowed():
    c = Cluster(*nodes(1, 4), groups={"vision": {"guarantee": 1}, "speech": {"guarantee": 4}})
    c.ask("ada", 1, "vision", **UP_TO_4)
    c.decide()
    c.at(600)
    c.ask("bob", 4, "speech")
    assert c.decide() == []


def test_a_lowered_limit_is_reached_by_shrinking():
    c = Cluster(*nodes(1, 8))
    c.ask("ada", 2), c.ask("ada", 1, **UP_TO_4)
    c.decide()
    c.at(600)
    c.picture.users.set("ada", Quota(limit=4))
    assert c.decide() == ["2 shrinks: the limit of user ada is below what is held"]
    c.comes_back(2)
    assert c.decide() == ["2 starts on 2 of n1"]


def test_the_slots_that_it_comes_back_to_are_given_to_nobody_meanwhile():
    c = Cluster(*nodes(1, 4))
    c.ask("ada", 1, **UP_TO_4)
    c.decide()
    c.at(600)
    c.ask("bob", 2)
    c.decide()
    c.ask("cy", 1), c.ask("di", 1)
    c.comes_back(1)
    assert c.decide() == ["1 starts on 1 of n1", "2 starts on 2 of n1", "3 starts on 1 of n1"]


# Growing


def test_it_grows_into_slots_that_nobody_waits_for_and_says_what_that_brings():
    c = at_two_of_four()
    measured(c, 2)
    said = "nobody waits for 2 more slots, expected to save 30 min for a restart of 10 s"
    assert c.decide() == [f"2 grows: {said}"]
    assert c.decide() == [], "once"
    c.comes_back(2)
    assert c.decide() == ["2 starts on 4 of n1"]


def test_it_does_not_grow_where_somebody_waits():
    c = at_two_of_four()
    measured(c, 2)
    c.ask("cy", 4)
    assert c.decide() == []


@pytest.mark.parametrize(
    "progress",
    [
        QUICK._replace(left=30.0),
        QUICK._replace(elapsed=100.0),
        QUICK._replace(step_times=((1, 0.2), (2, 0.2))),
        QUICK._replace(step_times=((2, 0.2), (4, 0.2))),
    ],
    ids=["it ends soon", "it has just been restarted", "two slots brought nothing", "four brought nothing"],
)
def test_it_does_not_grow_where_that_does_not_pay(progress):
    c = at_two_of_four()
    measured(c, 2, progress)
    assert c.decide() == []


def test_it_does_not_grow_before_it_is_measured_nor_beyond_a_limit_nor_where_nothing_starts():
    c = at_two_of_four()
    assert c.decide() == []
    measured(c, 2)
    c.picture.users.set("ada", Quota(limit=2))
    assert c.decide() == []
    c.picture.users.set("ada", Quota())
    c.picture.closed_pools = {"local": "pool local cannot be used now: it is away"}
    assert c.decide() == []


def test_it_does_not_leave_a_drained_node_to_which_it_could_not_come_back():
    c = at_two_of_four()
    measured(c, 2)
    c.picture.set_node(c.picture.nodes["n1"].model_copy(update={"drained": True}))
    assert c.decide() == []


def test_one_grows_at_a_time_the_one_whose_user_has_used_least():
    c = Cluster(*nodes(1, 8))
    for owner, slots in (("cy", 4), ("ada", 1), ("bob", 1)):
        c.ask(owner, slots, larger=() if owner == "cy" else (2, 3, 4))
    c.decide()
    assert (size(c, 2), size(c, 3)) == (2, 2)
    c.at(600)
    c.picture.users["bob"].hold(1, 600)
    c.picture.groups[""].hold(1, 600)
    c.picture.members["", "bob"].hold(1, 600)
    c.ends(1)
    measured(c, 2), measured(c, 3)
    assert [each.split(":")[0] for each in c.decide()] == ["2 grows"]
    c.at(601)
    assert c.decide() == []


# Sizes and progress


@given(st.integers(0, 40), st.lists(st.tuples(st.integers(1, 4), st.integers(0, 8)), max_size=6))
def test_what_is_free_is_divided_whole_and_nobody_gets_more_than_wanted(free, ranges):
    requests = [
        SlotRequest(nth, 1, least, 0.0, larger=range(least + 1, least + more + 1))
        for nth, (least, more) in enumerate(ranges)
    ]
    sizes = divided(free, requests)
    given_out = sum(sizes) - sum(request.slots for request in requests)
    wanted = sum(len(request.larger) for request in requests)
    assert given_out == min(free, wanted)
    assert all(got in (request.slots, *request.larger) for got, request in zip(sizes, requests, strict=True))
    short = [
        got - request.slots
        for got, request in zip(sizes, requests, strict=True)
        if got < request.slots + len(request.larger)
    ]
    assert max(short, default=0) - min(short, default=0) <= 1


def test_sizes_that_save_no_turn_of_logical_workers_are_left_out():
    assert list(larger_sizes(1, 4, 4)) == [2, 4]
    assert list(larger_sizes(2, 8, 8)) == [3, 4, 8]
    assert list(larger_sizes(2, 5, None)) == [3, 4, 5]


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 6), min_size=1), st.integers(1, 20))
def test_a_capacity_that_gets_slots_back_is_as_it_was(free, slots):
    capacity = Capacity(free.items())
    placed = capacity.place(slots, one_node=False)
    if placed is not None:
        capacity.take(placed)
        capacity.give(placed)
    fresh = Capacity(free.items())
    assert (capacity.free, capacity.total) == (fresh.free, fresh.total)
    assert all(capacity.place(n, one) == fresh.place(n, one) for n in range(1, 25) for one in (False, True))


def times(number: int, steps: int, seconds: float, rank: int = 0) -> AttemptTimes:
    return AttemptTimes(number, RankTimes(rank=rank, whole=Split(steps=steps, parts={"forward": seconds})))


def test_progress_is_measured_by_size_and_a_restart_up_to_the_second_step():
    attempts = [attempt(1, (share((0,)),), created_at=0.0), attempt(2, granted_at=100.0)]
    attempts.append(attempt(3, created_at=200.0, granted_at=200.0))
    known = [times(1, 100, 40.0), times(2, 20, 4.0), times(3, 40, 8.0), times(3, 40, 9.0, rank=1)]
    running = trial(attempt=3, step=80, total_steps=100)
    assert measured_progress(running, attempts, known, at=213.0) == Progress(
        left=pytest.approx(4.0), elapsed=8.0, restart=5.0, step_times=((1, 0.4), (2, 0.2))
    )
    unknown = trial(attempt=3, step=80)
    progress = measured_progress(unknown, attempts, known, at=213.0)
    assert progress is not None
    assert progress.left == 52.0, "as long again as it has trained"
    assert measured_progress(running, attempts, known[:2], at=213.0) is None, (
        "the attempt that runs is not measured yet"
    )
    assert measured_progress(running, attempts, [*known[:2], times(3, 3, 0.6)], at=213.0) is None, (
        "three steps say nothing"
    )


def test_another_size_that_was_measured_for_a_short_time_only_is_tried_again():
    """A few slow steps with four slots, on a busy machine, must not keep a training from four slots for good."""
    attempts = [attempt(1, created_at=0.0), attempt(2, (share((0, 1, 2, 3)),), created_at=100.0)]
    attempts.append(attempt(3, created_at=200.0, granted_at=200.0))
    running = trial(attempt=3, step=500, total_steps=9000)
    short = measured_progress(running, attempts, [times(2, 20, 8.0), times(3, 40, 8.0)], at=213.0)
    assert short is not None
    assert short.step_times == ((2, 0.2),)
    assert saved(short, 2, 4) > 0
    long = measured_progress(running, attempts, [times(2, 100, 40.0), times(3, 40, 8.0)], at=213.0)
    assert long is not None
    assert long.step_times == ((2, 0.2), (4, 0.4))
    assert saved(long, 2, 4) < 0


def test_what_is_saved_follows_two_measured_sizes():
    progress = Progress(
        left=100.0, elapsed=1.0, restart=1.0, step_times=((1, 1.0), (2, 0.75))
    )  # half a second is shared out
    assert saved(progress, 2, 4) == pytest.approx(100.0 * (1 - 0.625 / 0.75))
    assert saved(replace_times(progress, (2, 0.75), (4, 0.9)), 2, 4) == pytest.approx(-20.0), "measured to be slower"
    assert saved(replace_times(progress, (1, 1.0)), 2, 4) == 0.0, "not measured with as many as it has"


def replace_times(progress: Progress, *step_times: tuple[int, float]) -> Progress:
    return progress._replace(step_times=step_times)


def test_deciding_about_sizes_changes_nothing():
    c = at_two_of_four()
    measured(c, 2)
    assert decide(c.picture) == decide(c.picture)
    c.ask("ada", 1, **UP_TO_4)
    assert decide(c.picture) == decide(c.picture)


def test_restarts_are_a_fraction():
    with pytest.raises(ValueError, match="restarts of 0"):
        Rules(restarts=0.0)

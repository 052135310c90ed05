"""Test the simulated cluster: trace files, the progress of jobs, and metrics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.contenders.policies import POLICIES
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.simulation.metrics import bound, fairness, held, jain, utilisation, waits
from kernel_backend.scheduler.simulation.simulate import Outage, SimulatedInterval, simulate
from kernel_backend.scheduler.simulation.workloads import Workload, read_trace, synthetic, write_trace
from tests.support.clusters import nodes

USERS = {"ada": 0.001, "bob": 0.001}


def test_a_trace_is_read_as_it_was_written(tmp_path):
    jobs = synthetic(3, USERS, 40_000, groups={"ada": "vision"}, preemptible=0.5)
    assert len(jobs) > 20
    elastic = Workload(1 + len(jobs), 50_000.0, 60.0, 4, least=1)
    write_trace(tmp_path / "trace.csv", [elastic])
    assert read_trace(tmp_path / "trace.csv") == [replace(elastic, number=1)]
    write_trace(tmp_path / "trace.csv", jobs)
    assert read_trace(tmp_path / "trace.csv") == jobs
    assert synthetic(3, USERS, 40_000, groups={"ada": "vision"}, preemptible=0.5) == jobs


def test_three_columns_are_enough_and_what_is_wrong_is_told_by_its_line(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("slots,arrival,duration\n8,0,60\n4,5,30\n")
    assert [(job.slots, job.arrival, job.duration) for job in read_trace(path)] == [(8, 0, 60), (4, 5, 30)]
    path.write_text("slots,arrival,duration\n8,0,60\nmany,5,30\n")
    with pytest.raises(InvalidRequest, match=r"trace.csv line 3: .*'many'"):
        read_trace(path)
    path.write_text("slots,arrival,duration,one_node\n8,0,60,perhaps\n")
    with pytest.raises(InvalidRequest, match="line 2: 'perhaps'"):
        read_trace(path)
    path.write_text("slots,arrived,duration\n")
    with pytest.raises(InvalidRequest, match="arrival, arrived are unknown or missing"):
        read_trace(path)


def test_an_elastic_job_works_as_fast_as_its_slots_and_grows_when_it_may():
    jobs = [Workload(1, 0.0, 3000.0, 4, "ada", least=1), Workload(2, 0.0, 2000.0, 2, "bob")]
    played = simulate(jobs, nodes(1, 4), checkpoint_every=100.0, stall=10.0, rules=Rules(min_run=60))
    assert played.intervals == (
        SimulatedInterval(2, 0.0, 2000.0, 2000.0, 2),
        SimulatedInterval(1, 0.0, 2010.0, 1000.0, 2),  # half as fast; it stops for ten seconds to grow
        SimulatedInterval(1, 2010.0, 4010.0, 2000.0, 4),
    )
    assert held(played, 0.0, 100.0) == {"ada": 200.0, "bob": 200.0}


def test_a_crash_loses_what_was_done_since_the_last_checkpoint():
    jobs = [Workload(1, 0.0, 1000.0, 4)]
    played = simulate(jobs, nodes(1, 4), faults=lambda job, nth: 250.0 if nth == 0 else None, checkpoint_every=100.0)
    assert played.intervals == (
        SimulatedInterval(1, 0.0, 250.0, 200.0, 4),
        SimulatedInterval(1, 250.0, 1050.0, 800.0, 4),
    )
    assert played.ends == {1: 1050.0}


def test_a_lost_node_takes_its_gangs_with_it_and_they_go_on_elsewhere():
    jobs = [Workload(1, 0.0, 1000.0, 4), Workload(2, 0.0, 1000.0, 4)]
    played = simulate(jobs, nodes(2, 4), outages=[Outage("n1", 500.0, 2000.0)], checkpoint_every=400.0)
    assert played.ends == {2: 1000.0, 1: 1600.0}


def test_who_is_put_aside_loses_nothing_but_time():
    jobs = [Workload(1, 0.0, 1000.0, 4, "bob"), Workload(2, 300.0, 200.0, 4, "ada")]
    played = simulate(
        jobs,
        nodes(1, 4),
        users={"ada": Quota(guarantee=4)},
        checkpoint_every=100.0,
        stall=10.0,
        rules=Rules(min_run=60),
    )
    assert played.preempted == 1
    assert played.waits[2] == 10.0
    assert played.intervals[0] == SimulatedInterval(1, 0.0, 310.0, 300.0, 4)
    assert played.ends == {2: 510.0, 1: 1210.0}


def test_jains_index_is_one_of_equals_and_one_nth_where_one_has_all():
    assert jain([3.0, 3.0, 3.0]) == 1.0
    assert jain([5.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([0.0, 0.0]) == 1.0


def test_fairness_counts_what_is_held_within_each_window_by_weight():
    jobs = [Workload(1, 0.0, 100.0, 1, "ada"), Workload(2, 0.0, 200.0, 2, "bob")]
    played = simulate(jobs, nodes(1, 4))
    assert held(played, 50.0, 150.0) == {"ada": 50.0, "bob": 200.0}
    assert fairness(played, 100.0, {"ada": 1.0, "bob": 2.0}) == [1.0, 0.5]


def test_the_bound_is_what_arrived_or_what_all_slots_can_do():
    jobs = [Workload(1, 0.0, 100.0, 8), Workload(2, 150.0, 100.0, 4)]
    assert bound(jobs, 4, 200.0) == 4 * 200
    assert bound(jobs, 8, 200.0) == 800 + 4 * 50
    assert bound([], 8, 200.0) == 0.0


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["ours", *POLICIES]))
def test_no_policy_exceeds_the_bound_and_all_do_what_can_be_done(seed, name):
    policy = POLICIES[name]() if name in POLICIES else decide
    jobs = synthetic(seed, USERS, 20_000)
    played = simulate(jobs, nodes(2, 8), policy)
    assert set(played.ends) == {job.number for job in jobs}
    assert utilisation(played) <= 1 + 1e-9
    assert len(waits(played)) == len(jobs)


def test_a_user_with_ten_times_the_jobs_gets_no_more_than_his_part():
    jobs = synthetic(1, {"ada": 0.02, "bob": 0.002}, 80_000, sizes=((1, 0.7), (2, 0.3)), median=600.0)
    window, weights = 10_000.0, {"ada": 1.0, "bob": 1.0}
    ours = fairness(simulate(jobs, nodes(1, 4), until=80_000), window, weights, begun=2 * window)
    first = POLICIES["first come, first served"]()
    theirs = fairness(simulate(jobs, nodes(1, 4), first, until=80_000), window, weights, begun=2 * window)
    assert min(ours) > 0.95
    assert max(theirs) < 0.9

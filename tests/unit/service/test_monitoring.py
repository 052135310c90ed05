"""Test metrics for monitoring systems, for clusters that are larger than tests can run."""

from __future__ import annotations

from kernel_backend.model.cluster.monitored import StoreCounts
from kernel_backend.model.cluster.pools import PoolStatus
from kernel_backend.service.views.monitoring import MOST_USERS, OTHERS, cluster_families, store_families
from tests.support.clusters import Cluster, nodes


def test_at_most_a_thousand_users_have_series_of_their_own():
    cluster = Cluster(*nodes(300, slots=8))
    for number in range(1100):
        cluster.ask(f"user-{number}", slots=2 if number >= 100 else 1)
    cluster.decide()
    (used,) = [each for each in cluster_families(cluster.picture, []) if each.name == "daylight_slots_used"]
    by_user = {labels[2]: value for labels, value in used.samples}
    assert len(by_user) == MOST_USERS + 1
    assert by_user[OTHERS] == 100
    assert sum(by_user.values()) == 2100
    assert "user-0" not in by_user


def test_an_empty_pool_and_a_broken_one_are_told():
    pools = [PoolStatus(name="local", engine="local"), PoolStatus(name="gpu", engine="slurm", problem="no answer")]
    found = {each.name: each.samples for each in cluster_families(Cluster(*nodes(1, slots=1)).picture, pools)}
    assert found["daylight_pool_up"] == [(("local",), True), (("gpu",), False)]
    assert found["daylight_queued_slots"] == [(("local",), 0), (("gpu",), 0)]


def test_states_and_outcomes_that_nothing_has_are_zero():
    found = {each.name: dict(each.samples) for each in store_families(StoreCounts({}, {"lost": 2}, []))}
    assert found["daylight_attempts"]["lost",] == 2
    assert found["daylight_attempts"]["ok",] == 0
    assert set(found["daylight_experiments"].values()) == {0}

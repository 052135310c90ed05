"""Test sums and means of the use of slots, over time and over ranks."""

from __future__ import annotations

import pytest

from kernel_backend.model.launch.utilisation import DeliveredUse, SlotUse, StoredUse, merged, thinned, together
from kernel_backend.service.views.utilisation import of_trial


def stored(attempt: int, rank: int, number: int, **use: float) -> StoredUse:
    return StoredUse(1, 1, attempt, DeliveredUse(rank=rank, node=f"n{rank}", number=number, use=SlotUse(**use)))


def test_unknown_values_are_no_zeros() -> None:
    whole = merged(
        [SlotUse(seconds=10, gpu=0.2, temperature=50), SlotUse(seconds=30, gpu=0.6), SlotUse(at=9.0, seconds=100)]
    )
    assert (whole.at, whole.seconds, whole.gpu, whole.temperature, whole.power) == (9.0, 140.0, 0.5, 50.0, None)
    assert merged([]) == SlotUse()
    assert together([]) == SlotUse()


def test_slots_together_have_the_mean_of_gpus_and_the_sum_of_all_else() -> None:
    both = together([SlotUse(at=1, seconds=5, gpu=0.2, cpu=1.5, power=100, temperature=50), SlotUse(gpu=0.4, cpu=0.5)])
    assert (both.gpu, both.cpu, both.power, both.temperature) == (pytest.approx(0.3), 2.0, 100.0, 50.0)
    assert (both.at, both.seconds) == (1.0, 5.0)


def test_energy_is_power_times_time_and_unknown_without_power() -> None:
    assert SlotUse(seconds=3600, power=900, cpu_power=100).kwh == pytest.approx(1.0)
    assert SlotUse(seconds=3600, cpu_power=100).watts == 100.0
    assert SlotUse(seconds=3600).kwh is None


def test_a_curve_is_thinned_by_merging_neighbours() -> None:
    curve = [SlotUse(at=float(each), seconds=1, gpu=float(each)) for each in range(10)]
    few = thinned(curve, 4)
    assert [each.gpu for each in few] == [1.0, 4.0, 7.0, 9.0]
    assert thinned(curve, 10) == tuple(curve)
    assert thinned(curve, 0) == ()


def test_a_trial_has_the_ranks_of_its_newest_attempt_and_the_use_of_all() -> None:
    found = of_trial(
        1,
        [
            *(stored(1, rank, 0, at=1, gpu=0.9) for rank in (0, 1)),
            *(stored(1, rank, 1, at=1, seconds=10, gpu=0.1) for rank in (0, 1)),
            stored(2, 0, 0, at=50, seconds=5, gpu=0.7),
            stored(2, 0, 1, at=50, seconds=30, gpu=0.5),
        ],
        points=200,
        since=40.0,
    )
    (rank,) = found.ranks
    assert (found.live, rank.node, [each.at for each in rank.curve]) == (True, "n0", [1.0, 50.0])
    assert rank.latest == found.latest == SlotUse(at=50, seconds=5, gpu=0.7)
    assert (rank.whole.gpu, found.whole.seconds) == (pytest.approx(0.4), 50.0)


def test_samples_are_current_while_it_trains_and_young() -> None:
    sample = [stored(1, 0, 0, at=50, seconds=5), stored(1, 0, 1, at=50, seconds=5)]
    assert of_trial(1, sample, 10, None).latest is None
    assert not of_trial(1, sample, 10, 60.0).live
    assert of_trial(1, [], 10, 60.0).ranks == ()

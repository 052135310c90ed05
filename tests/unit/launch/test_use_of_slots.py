"""Test how samples of a slot become its use, its curve, and deliveries."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from kernel_backend.launch.utilisation.curve import Curve
from kernel_backend.launch.utilisation.readings import Reading, combined, use_between
from kernel_backend.launch.utilisation.sampler import AT_ONCE, SlotMeters, UseReader, UseSampler
from kernel_backend.model.launch.utilisation import DeliveredUse, SlotUse
from kernel_backend.model.resources import Share

SHARE = Share(node="n1", kind="cpu", address="127.0.0.1", slots=(0, 1))


def test_counters_become_rates_and_what_is_unknown_stays_unknown() -> None:
    before = Reading(cpu_seconds=10.0, joules=1000.0, package_joules=500.0, busy_seconds=100.0)
    now = Reading(8.0 + 10.0, 7.0, 0.3, joules=2000.0, package_joules=900.0, busy_seconds=116.0)
    use = use_between(before, now, 4.0, at=50.0)
    assert (use.at, use.seconds, use.gpu, use.memory) == (50.0, 4.0, 0.3, 7.0)
    assert (use.cpu, use.power, use.cpu_power) == (2.0, 250.0, 50.0)  # half of the CPU time, half of 100 W
    assert (use.temperature, use.gpu_memory) == (None, None)
    assert use_between(Reading(), Reading(), 4.0, at=0.0) == SlotUse(seconds=4.0)


def test_a_counter_that_was_reset_is_unknown_and_a_gpu_without_one_has_its_power() -> None:
    use = use_between(Reading(cpu_seconds=9.0, joules=5.0), Reading(cpu_seconds=1.0, joules=1.0), 1.0, at=0.0)
    assert (use.cpu, use.power) == (None, None)
    assert use_between(Reading(), Reading(power=80.0), 1.0, at=0.0).power == 80.0


def test_readings_of_several_meters_are_combined() -> None:
    assert combined([Reading(memory=1.0), Reading(), Reading(gpu=0.5)]) == Reading(memory=1.0, gpu=0.5)


@pytest.mark.parametrize(("hours", "most"), [(0.1, 40), (1, 220), (24, 520), (168, 700)])
def test_the_number_of_periods_stays_small_however_long_an_attempt_is(hours: float, most: int) -> None:
    curve, ended = Curve(), []
    for _ in range(int(hours * 720)):
        period = curve.add(SlotUse(seconds=5.0, gpu=0.5))
        ended += [period] if period else []
    last = curve.end()
    ended += [last] if last else []
    assert [number for number, _ in ended] == list(range(1, len(ended) + 1))
    assert sum(use.seconds for _, use in ended) == int(hours * 720) * 5.0
    assert len(ended) <= most
    assert curve.end() is None


class FakeMeter:
    """Meter whose CPU time grows by two seconds with each reading."""

    seconds = 0.0

    def read(self, trees: Mapping[int, tuple[int, ...]]) -> dict[int, Reading]:
        self.seconds += 2.0
        return dict.fromkeys(trees, Reading(cpu_seconds=self.seconds))


def test_a_reader_samples_the_ranks_that_run() -> None:
    times = iter((0.0, 4.0, 8.0, 12.0))
    reader = UseReader("n1", SlotMeters([FakeMeter()], {0: "A100"}), lambda: next(times))
    pids = {0: os.getpid(), 1: 2**22 + 1}
    assert reader.sample(pids) == []
    (first,) = reader.sample(pids)
    assert (first.rank, first.node, first.device, first.number) == (0, "n1", "A100", 0)
    assert (first.use.seconds, first.use.cpu) == (4.0, 0.5)
    reader.sample(pids)
    _, period = reader.sample(pids)
    assert (period.number, period.use.seconds) == (1, 12.0)
    assert reader.end() == []


def test_what_was_not_delivered_is_delivered_again_and_the_newest_sample_alone() -> None:
    sampler = UseSampler(SHARE, [0, 1], dict)
    slots = [
        DeliveredUse(rank=0, use=SlotUse(at=1.0)),
        DeliveredUse(rank=0, number=1),
        DeliveredUse(rank=0, use=SlotUse(at=2.0)),
    ]
    sampler._put(slots)
    assert sampler.due() == (slots[2], slots[1])
    assert sampler.due() == (slots[2], slots[1])
    due = sampler.due()
    sampler._put([DeliveredUse(rank=0, use=SlotUse(at=3.0)), DeliveredUse(rank=0, number=2)])
    sampler.delivered(due)
    assert [(each.number, each.use.at) for each in sampler.due()] == [(0, 3.0), (2, 0.0)]
    sampler.delivered(sampler.due())
    assert sampler.due() == ()


def test_a_delivery_has_a_limited_number_of_periods() -> None:
    sampler = UseSampler(SHARE, [0, 1], dict)
    sampler._put([DeliveredUse(rank=0, number=number) for number in range(1, AT_ONCE + 3)])
    assert len(sampler.due()) == AT_ONCE
    sampler.delivered(sampler.due())
    assert [each.number for each in sampler.due()] == [AT_ONCE + 1, AT_ONCE + 2]

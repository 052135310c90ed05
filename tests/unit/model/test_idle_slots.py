"""Test which gangs count as idle: only those that are measured, and use none of their slots."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.model.cluster.idle import busy, idle_seconds
from kernel_backend.model.launch.utilisation import DeliveredUse, SlotUse, StoredUse

KEY = (1, 1)
NOW = 10_000.0


def slot(rank: int = 0, number: int = 0, device: str = "A100", **use: Any) -> StoredUse:
    values = {"at": NOW - 10.0, "seconds": 600.0 if number else 5.0, "gpu": 0.01} | use
    return StoredUse(1, 1, 1, DeliveredUse(rank=rank, number=number, device=device, use=SlotUse(**values)))


def idle(*used: StoredUse, slots: int = 1) -> float:
    return idle_seconds(used, {KEY: slots}, 0.05, NOW)[KEY]


def test_the_periods_since_the_last_use_count() -> None:
    assert idle(slot(), slot(number=1), slot(number=2, gpu=0.5), slot(number=3), slot(number=4)) == 1205.0
    assert idle(slot()) == 5.0


def test_a_slot_that_is_used_now_is_not_idle() -> None:
    assert idle(slot(gpu=0.9), slot(number=1)) == 0.0


@pytest.mark.parametrize("newest", [slot(gpu=None), slot(at=NOW - 600.0)], ids=["unknown", "old"])
def test_unknown_use_is_no_idleness(newest: StoredUse) -> None:
    assert idle(newest, slot(number=1)) == 0.0
    assert idle(slot(), slot(number=1), slot(number=2, gpu=None), slot(number=3)) == 605.0
    assert idle() == 0.0


def test_a_period_that_is_missing_ends_the_time() -> None:
    assert idle(slot(), slot(number=1), slot(number=3), slot(number=4)) == 1205.0


def test_a_gang_is_idle_if_all_of_its_slots_are() -> None:
    first, second = (slot(0), slot(0, 1)), (slot(1), slot(1, 1, seconds=300.0))
    assert idle(*first, *second, slots=2) == 305.0
    assert idle(*first, slot(1, gpu=0.5), slots=2) == 0.0
    assert idle(*first, slots=2) == 0.0  # the other one is not measured


def test_without_a_gpu_the_processor_counts_and_with_one_it_does_not() -> None:
    assert busy(slot(device="", gpu=None, cpu=0.5).slot) == 0.5
    assert busy(slot(gpu=None, cpu=0.0).slot) is None
    assert busy(slot(gpu=0.0, cpu=3.0).slot) == 0.0

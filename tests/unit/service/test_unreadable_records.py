"""Test that a damaged record in the store affects only its own experiment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from kernel_backend.scheduler.requests import RequestKey
from kernel_backend.store.sql import SqlStore
from tests.support.clusters import nodes
from tests.unit.service.test_cluster_state import World

DAMAGE = {
    "experiments 1: ": "UPDATE experiments SET config = '{' WHERE number = 1",
    "trials 1.1: ": "UPDATE trials SET excluded = '[\"n1' WHERE experiment = 1",
    "trials 1.1: 1 validation error": "UPDATE trials SET queued_at = 'soon' WHERE experiment = 1",
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.store.close()


def damage(world: World, statement: str) -> None:
    """Damage the record, and return the service's parts as after a restart."""
    assert isinstance(world.store, SqlStore)
    with world.store._writing() as tx:
        tx.db.execute(text(statement))
    world.cluster_state = world.afresh()


@pytest.mark.parametrize("told", DAMAGE)
def test_the_others_are_started_and_the_log_names_the_record(
    world: World, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.submit("ada")
    other = world.submit("bob")
    damage(world, DAMAGE[told])
    with caplog.at_level(logging.ERROR):
        starts = asyncio.run(world.decide())
    assert [start.request.experiment for start in starts] == [other]
    assert told in caplog.text


def test_the_slots_of_its_gang_are_taken_all_the_same(world: World) -> None:
    world.engine.there = nodes(1, 2)
    number = world.submit("ada", slots=2)
    asyncio.run(world.decide())
    world.submit("bob")
    damage(world, "UPDATE experiments SET config = '{' WHERE number = 1")
    assert asyncio.run(world.decide()) == []
    assert RequestKey(number, 1) in asyncio.run(world.cluster_state.now()).runs


@pytest.mark.parametrize("column", ["failure = '{'", "outcome = 'lost its way'", "accepted = 'many'"])
def test_an_attempt_that_cannot_be_read_holds_its_experiment_and_keeps_its_slots(
    world: World, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.engine.there = nodes(1, 2)
    number = world.submit("ada")
    asyncio.run(world.decide())
    others = [world.submit("bob"), world.submit("bob")]
    damage(world, f"UPDATE attempts SET {column} WHERE experiment = {number}")
    with caplog.at_level(logging.ERROR):
        starts = asyncio.run(world.decide())
    assert [start.request.experiment for start in starts] == others[:1]
    assert RequestKey(number, 1) in asyncio.run(world.cluster_state.now()).runs
    assert f"attempts {number}.1-1: " in caplog.text


def test_the_others_go_on_where_not_even_the_slots_of_an_attempt_can_be_read(world: World) -> None:
    number = world.submit("ada")
    asyncio.run(world.decide())
    other = world.submit("bob")
    damage(world, f"UPDATE attempts SET placement = '[' WHERE experiment = {number}")
    assert [start.request.experiment for start in asyncio.run(world.decide())] == [other]

"""Test that gangs which leave their slots unused are shown, and that the admins' rule applies to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.client import Client
from kernel_backend.model.cluster.idle import IdleRule
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.utilisation import DeliveredUse, SlotUse
from kernel_backend.model.reports import Delivery
from kernel_backend.text.cluster import node_row
from tests.api.served import Served, StillEngine, started, submit, token_of
from tests.support.world import until

FIRST = AttemptId(1, 1, 1)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., tuple[Served, Client]]]:
    """Provide a function that starts a service with this rule, and trains on one slot."""
    made: list[tuple[Served, Client]] = []

    def begin(action: Any) -> tuple[Served, Client]:
        served = Served(tmp_path, StillEngine(), idle_rule=IdleRule(action))
        made.append((served, served.client()))
        submit(made[-1][1])
        return made[-1]

    yield begin
    for served, client in made:
        client.close()
        served.stop()


def measure(served: Served, client: Client, cpu: float) -> None:
    """Deliver 40 minutes of this use, and run the review."""
    now = time.time()
    use = SlotUse(at=now, seconds=5.0, cpu=cpu)
    hour = DeliveredUse(rank=0, number=1, use=use.model_copy(update={"seconds": 2400.0}))
    client.deliver(
        FIRST, token_of(served, FIRST), Delivery(records=(started(),), use=(DeliveredUse(rank=0, use=use), hour))
    )
    until(lambda: client.experiment(1).trials[0].state == "running", "it trains")
    served.run(served.service.idle.review(now))


def notes(client: Client) -> list[str]:
    return list(client.experiment(1).warnings)


def test_an_idle_gang_is_shown_and_without_a_rule_nothing_else_happens(serve) -> None:
    served, client = serve("")
    measure(served, client, cpu=0.01)
    (node,) = client.nodes()
    assert "(#1, idle for 40 min" in node_row(node, time.time())[4]
    assert notes(client) == []
    assert client.experiment(1).state == "running"


def test_its_owner_is_told_once(serve) -> None:
    served, client = serve("notify")
    measure(served, client, cpu=0.01)
    measure(served, client, cpu=0.01)
    assert notes(client) == ["less than 5 % of its slots in use for 30m: see daylight top 1"]
    assert client.experiment(1).state == "running"


def test_its_slots_are_released_after_a_checkpoint_and_it_can_go_on(serve) -> None:
    served, client = serve("release")
    measure(served, client, cpu=0.5)
    assert notes(client) == []
    measure(served, client, cpu=0.01)
    assert notes(client) == ["paused: less than 5 % of its slots in use for 30m; daylight resume 1 goes on"]
    until(lambda: client.experiment(1).trials[0].state == "releasing", "it saves a checkpoint")
    served.engine.step_aside(FIRST)
    until(lambda: client.experiment(1).state == "paused", "its slots are free")

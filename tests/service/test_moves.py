"""Test trainings that change their pool, over two pools of real gangs: each gang starts once, and bits stay equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernel_backend import discovery
from kernel_backend.engines.folders import GangFolders
from kernel_backend.engines.local import LocalEngine
from kernel_backend.model.resources import Node
from tests.api.served import SECOND, TOKEN, Served
from tests.support.world import World, until

pytestmark = pytest.mark.distributed

OPTIONS: dict[str, Any] = {"epochs": 3, "checkpoint_every": {"steps": 4}}


class SecondPool(LocalEngine):
    """Engine for this machine as the node of a second pool."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._folders = GangFolders(home, "second")

    async def nodes(self) -> Sequence[Node]:
        return [node.model_copy(update={"name": "second-1", "pool": "second"}) for node in await super().nodes()]


class TwoPools(World):
    """Service with two pools of two slots each."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, shared_forkserver=True)
        others: Any = {"second": SecondPool(home)}
        self.served = Served(home, LocalEngine(home), pools={"second": SECOND.to_json()}, others=others)  # type: ignore[arg-type]
        discovery.write_private(home / "token", TOKEN)
        discovery.announce(home, "127.0.0.1", self.served.port)

    def attempts(self, number: int) -> list[tuple[int, str, str]]:
        """Return number, pool and outcome of a training's attempts."""
        found = self.served.service._store.attempts(number, 1)
        return [(each.number, each.pool, str(each.outcome)) for each in found]

    def close(self) -> None:
        self.served.stop()
        super().close()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoPools]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAYLIGHT_SLOTS", "2")
        made = TwoPools(tmp_path_factory.mktemp("pools") / "home")
    yield made
    made.close()


@pytest.fixture(scope="module")
def quiet(two: TwoPools) -> dict[str, str]:
    """Provide the weights of an undisturbed run."""
    number = two.submit(**OPTIONS).experiment.number
    assert two.ended(number).state == "completed"
    return two.weights(number)


def test_a_running_training_moves_by_a_checkpoint_and_keeps_its_bits(two: TwoPools, quiet: dict[str, str]):
    number = two.lasting(**OPTIONS, backend="torch")
    two.checkpointed(number)
    two.served.client().move(number, "second")
    until(lambda: len(two.attempts(number)) == 2, "it goes on in the other pool")
    two.hurry(number, attempt=2)
    ended = two.ended(number)
    assert ended.state == "completed", ended
    assert two.attempts(number) == [(1, "local", "released"), (2, "second", "ok")]
    assert any(note.startswith("moved from local to second at step ") for note in ended.warnings), ended.warnings
    assert two.weights(number) == quiet


def test_trainings_for_either_pool_fill_both_and_each_is_started_once(two: TwoPools, quiet: dict[str, str]):
    numbers = [two.lasting(pool="second,local", backend="torch", **OPTIONS) for _ in range(3)]
    until(lambda: sum(bool(two.attempts(number)) for number in numbers) == 2, "both pools are full")
    until(lambda: two.overview(numbers[2]).wait is not None, "the third waits")
    for number in numbers:
        two.hurry(number)
    for number in numbers:
        assert two.ended(number).state == "completed"
        assert two.weights(number) == quiet
    assert [two.attempts(number)[0][1] for number in numbers[:2]] == ["second", "local"]
    assert [len(two.attempts(number)) for number in numbers] == [1, 1, 1]


def test_a_killed_gang_goes_on_in_the_pool_where_it_was(two: TwoPools, quiet: dict[str, str]):
    first = two.lasting(pool="local", backend="torch", **OPTIONS)
    two.checkpointed(first)
    number = two.lasting(pool="local,second", backend="torch", **OPTIONS)
    two.checkpointed(number)
    two.hurry(first)
    two.ended(first)
    for rank in two.ranks().values():
        rank.kill()
    until(lambda: len(two.attempts(number)) == 2, "it is started again")
    two.hurry(number, attempt=2)
    assert two.ended(number).state == "completed"
    assert [pool for _, pool, _ in two.attempts(number)] == ["second", "second"]
    assert two.weights(number) == quiet

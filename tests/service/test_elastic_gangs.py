"""Test that an elastic training in a real service grows and shrinks with the free slots, and keeps its bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernel_backend.model.views.overview import Overview
from kernel_backend.scheduler.rules import Rules
from tests.support.shared_cluster import BORROWS, Lent
from tests.support.world import gone, until

pytestmark = pytest.mark.distributed

# Steps of 8 samples, each of which four logical workers compute: more slots take fewer turns. The turns are long, so
# that more slots are faster also on a machine that has other work.
TRAINING = {"epochs": 16, "checkpoint_every": {"steps": 2}, "logical_workers": 4}
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lent]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAYLIGHT_SLOTS", "4")
        made = Lent(tmp_path_factory.mktemp("elastic"), Rules(min_run=0.0, grace=60.0, restarts=1.0))
        yield made
        made.close()


def trains(shared: Lent, number: int, attempt: int, slots: int) -> Overview:
    """Wait until an attempt has committed a checkpoint, and assert its number of slots."""

    def look() -> Overview | None:
        found = shared.overview(number)
        own = found.trials[0].checkpoint or ""
        return found if own.endswith(f"-{attempt}") else None

    found = until(look, f"attempt {attempt} of #{number} commits a checkpoint", PATIENCE_S)
    assert found.attempts[-1].slots == slots, found.warnings
    return found


def test_three_changes_and_a_kill_leave_the_bits_of_one_number_of_slots(shared: Lent) -> None:
    elastic = shared.lasting(group=BORROWS, backend="torch", pause=1.0, slots=4, least_slots=1, **TRAINING)
    trains(shared, elastic, attempt=1, slots=4)

    other = shared.lasting(group=BORROWS, backend="torch", slots=2)
    trains(shared, elastic, attempt=2, slots=2)
    shared.reached(other, 1)
    shared.hurry(other)

    grown = trains(shared, elastic, attempt=3, slots=4)
    assert grown.attempts[1].outcome == "released"
    said = [each for each in grown.warnings if "attempt 2 grows: nobody waits for 2 more slots" in each]
    assert said, grown.warnings

    ranks = list(shared.ranks().values())
    for rank in ranks:
        rank.suspend()  # it does not save what it has when it is asked to exit
    third = shared.lasting(group=BORROWS, backend="torch", slots=3)
    shared.state(elastic, "releasing")
    for rank in ranks:
        rank.kill()
    shrunk = trains(shared, elastic, attempt=4, slots=1)
    assert all(gone(rank) for rank in ranks)
    assert shrunk.attempts[2].outcome == "failed"
    shared.reached(third, 1)

    shared.hurry(elastic, attempt=4)
    shared.hurry(third)
    after = shared.ended(elastic, PATIENCE_S)
    assert (after.state, after.trials[0].failures) == ("completed", 0)
    kept = "the result keeps its bits, since --logical-workers is 4"
    changes = [each for each in after.warnings if each.endswith(kept)]
    assert [each.split(" after step ")[0] for each in changes] == [
        "shrank from 4 to 2 slots", "grew from 2 to 4 slots", "shrank from 4 to 1 slot",
    ]  # fmt: skip

    alone = shared.asks(BORROWS, slots=2, **TRAINING)
    assert shared.ended(alone, PATIENCE_S).state == "completed"
    assert shared.weights(elastic) == shared.weights(alone)

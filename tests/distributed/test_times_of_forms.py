"""Test that every form of training splits the time of its ranks into the same parts."""

from __future__ import annotations

import pytest
import test_keras
import test_lightning
import test_run_loop
import test_trainer
from gang import DIGITS, LOADER_LOOP, Trial

from kernel_backend.model.times import PARTS

pytestmark = pytest.mark.distributed
STEP = {"forward", "backward", "optimizer", "communication"}  # of two ranks


@pytest.mark.parametrize(
    ("source", "more"),
    [
        pytest.param(DIGITS, {"data", "validation"}, id="functions"),
        pytest.param(test_lightning.DIGITS, {"data", "validation"}, id="lightning"),
        pytest.param(test_keras.CELL, {"data", "validation"}, id="keras"),
        pytest.param(test_trainer.CELL, {"data", "validation"}, id="trainer"),
        pytest.param(test_run_loop.PLAIN, {"data"}, id="loop"),
        pytest.param(LOADER_LOOP, {"data"}, id="script"),
    ],
)
def test_both_ranks_split_their_time(tmp_path, source, more):
    trial = Trial(tmp_path, source, slots=2, every="3steps", epochs=2)
    ran = trial.run()
    assert ran.codes == [0, 0], ran.logs()
    steps = trial.newest().step
    for rank in (0, 1):
        times = ran.folder.times(rank)
        assert times is not None
        assert not times.running
        assert times.steps == steps - 1  # all but the first
        parts = {part for part, seconds in zip(PARTS, times.seconds, strict=True) if seconds}
        assert parts >= STEP | more | {"checkpoint"}
        assert "transfer" not in parts  # there is no device

"""Test arguments of Lightning's Trainer in a job: accumulated gradients, pauses, and a length in steps."""

from __future__ import annotations

import pytest
from gang import Trial
from test_lightning import DIGITS

pytestmark = pytest.mark.distributed

ACCUMULATED = (
    DIGITS
    + """
trainer = L.Trainer(max_epochs=2, accumulate_grad_batches=4, val_check_interval=3, precision="bf16-mixed")
trainer.fit(Digits())
"""
)


@pytest.mark.parametrize("slots", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_training_killed_between_two_updates_ends_with_the_same_bits(tmp_path, slots):
    """Accumulated gradients are part of a checkpoint."""
    options = {"amp": "bf16"}
    whole = Trial(tmp_path / "whole", source=ACCUMULATED, slots=slots, options=options)
    ran = whole.run()
    assert ran.codes == [0] * slots, ran.logs()
    assert list(ran.reports("validation")) == [3, 6, 9, 12]
    killed = Trial(tmp_path / "killed", source=ACCUMULATED, slots=slots, every="1steps", options=options)
    first = killed.start(hold=6).reaches(5)
    first.wait(lambda: "3-1" in first.committed())
    first.kill(slots - 1)
    second = killed.run(resume_from="3-1")
    assert second.codes == [0] * slots, second.logs()
    assert killed.parts() == whole.parts()


def test_a_training_that_pauses_and_is_released_ends_with_the_same_bits(tmp_path):
    """A search pauses the training at the end of an epoch, and its slots are released within another one."""
    whole = Trial(tmp_path / "whole", source=DIGITS, slots=2, options={"steps": 10})
    assert whole.run().codes == [0, 0]
    paused = Trial(tmp_path / "paused", source=DIGITS, slots=2, until=6, options={"steps": 10})
    first = paused.run()
    assert (first.codes, first.committed()) == ([85, 85], ["6-1"]), first.logs()
    paused.until = 10
    second = paused.start(resume_from="6-1", hold=2).reaches(7)
    second.tell("release").heard()
    second.go().ended()
    assert second.codes == [85, 85], second.logs()
    assert paused.run(resume_from=paused.pinned()).codes == [0, 0]
    assert paused.newest().step == 10
    assert paused.parts() == whole.parts()

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


def test_a_length_and_a_target_in_steps_end_within_an_epoch(tmp_path):
    told = Trial(tmp_path, source=DIGITS, until=4, options={"steps": 10})
    ran = told.start().tell("until 10").ended()
    assert (ran.codes, ran.committed()) == ([0, 0], ["4-1", "10-1"]), ran.logs()

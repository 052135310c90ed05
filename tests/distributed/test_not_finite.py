"""Test that a training whose loss stays NaN or infinite fails with the step, the line and the origin."""

from __future__ import annotations

import pytest
import torch
from gang import DIGITS, Trial

from kernel_backend.runner.data.permutation import Permutation

pytestmark = pytest.mark.distributed

LOSS = "return nn.functional.cross_entropy(output, target)"


def broken_at(step: int, where: str) -> str:
    """Return the standard training, with a loss that is NaN from this step on."""
    return DIGITS.replace(LOSS, f"return nn.functional.cross_entropy(output, target) * ({where})").replace(
        "def loss(output, target,", f"START = {step}\ndef loss(output, target, model,"
    )


def place(source: str) -> str:
    """Return the cell and line of the loss function in the message of an error."""
    above = source[: source.index("def loss(")]
    return f"cell [4] line {above.count(chr(10)) + 2}"


@pytest.mark.parametrize("slots", [1, 2])
def test_three_losses_in_a_row_that_are_not_finite_end_it(trial, slots):
    source = broken_at(5, "float('nan') if taken > START and torch.is_grad_enabled() else 1.0")
    trained = trial(source=source, slots=slots, every="1steps")
    ran = trained.run()
    assert set(ran.codes) == {1}, ran.logs()
    failure = ran.failures()[0]
    assert failure.type == "NotFinite"
    assert failure.message.startswith(f"the loss is nan since step 6 ({place(source)}): the model gives finite outputs")
    assert trained.newest().step == 5


@pytest.mark.parametrize("slots", [1, 2])
def test_the_first_layer_that_is_not_finite_is_named(trial, slots):
    """The layer computes the logarithm of a ReLU's output."""
    source = DIGITS.replace("nn.ReLU()", "nn.ReLU(), Log()").replace(
        "def dataset():", "class Log(nn.Module):\n    def forward(self, x): return x.log()\ndef dataset():", 1
    )
    ran = trial(source=source, slots=slots).run()
    assert set(ran.codes) == {1}, ran.logs()
    assert f"since step 1 ({place(source)}): layer 3 (Log) gives inf. A lower" in ran.failures()[0].message


def test_a_training_too_short_for_three_fails_by_its_weights(trial):
    ran = trial(source=DIGITS.replace("lr=1e-2", "lr=1e30"), options={"steps": 2}, slots=1).run()
    assert ran.codes == [1], ran.logs()
    assert "since step 2 (" in ran.failures()[0].message


def test_go_on_trains_on_and_one_or_two_are_no_fault(tmp_path):
    source = broken_at(5, "float('nan') if taken > START and torch.is_grad_enabled() else 1.0")
    going = Trial(tmp_path / "going", source=source, slots=1, options={"on_nan": "go-on"})
    ran = going.run()
    assert ran.codes == [0]
    assert f"the loss is nan at step 6 ({place(source)}): the model gives finite outputs" in ran.notes()[0]
    twice = broken_at(5, "float('inf') if 5 < taken < 8 and torch.is_grad_enabled() else 1.0")
    mended = Trial(tmp_path / "twice", source=twice, slots=1, options={"amp": "fp16"})
    ran = mended.run()
    assert ran.codes == [0], ran.logs()


GOES_BACK = {"on_nan": "go_back"}
LAST = int(Permutation(0, 0, 70).slice(69, 70)[0])  # the sample that ends the first epoch, in step 6


def poisoned(sample: int) -> str:
    """Return the standard training with a NaN in one sample."""
    made = "    return torch.utils.data.TensorDataset(x,"
    return DIGITS.replace(made, f"    x[{sample}] = float('nan')\n{made}", 1)


def bad_steps(sample: int, epochs: int) -> list[int]:
    """Return the steps, counted from 1, that contain that sample."""
    orders = [Permutation(0, epoch, 70).slice(0, 70).tolist() for epoch in range(epochs)]
    return [6 * epoch + order.index(sample) // 12 + 1 for epoch, order in enumerate(orders)]


@pytest.mark.parametrize(("slots", "backend"), [(1, "torch"), (2, "horovod")])
def test_a_training_goes_back_and_leaves_out_the_steps_that_led_to_a_nan(tmp_path, slots, backend):
    settings = {"source": poisoned(LAST), "slots": slots, "backend": backend, "every": "2steps", "options": GOES_BACK}
    whole = Trial(tmp_path / "whole", **settings)
    ran = whole.run()
    assert set(ran.codes) == {0}, ran.logs()
    steps = bad_steps(LAST, 2)
    left_out = [[(step - 1) // 2 * 2 + 1, step + 1] for step in steps]
    assert steps[0] == 6
    assert whole.newest().state["training"]["left_out"] == left_out
    first = next(each for each in ran.notes() if "goes back" in each)
    assert first.startswith(f"the loss is nan at step 6 ({place(poisoned(LAST))}): the input of the batch has nan. The")
    assert first.endswith("to step 4, and steps 5 to 6 are left out (1 of 3 times)")
    assert all(torch.isfinite(each).all() for each in whole.model().values())

    killed = Trial(tmp_path / "killed", **settings)
    killed.start(hold=7).reaches(7).kill(0)
    second = killed.run(resume_from=killed.pinned())
    assert set(second.codes) == {0}, second.logs()
    assert killed.parts() == whole.parts()
    assert killed.newest().state["training"] == whole.newest().state["training"]


def test_it_goes_back_three_times_and_only_to_a_checkpoint(tmp_path):
    often = Trial(tmp_path / "often", source=poisoned(LAST), slots=1, every="2steps", options=GOES_BACK, epochs=5)
    ran = often.run()
    assert ran.codes == [1], ran.logs()
    message = ran.failures()[0].message
    assert f"the loss is nan at step {bad_steps(LAST, 4)[3]} (" in message
    assert "went back 3 times before" in message
    early = Trial(tmp_path / "early", source=poisoned(LAST), slots=1, every="1epoch", options=GOES_BACK).run()
    assert early.codes == [1], early.logs()
    assert "There is no checkpoint before it to go back to" in early.failures()[0].message

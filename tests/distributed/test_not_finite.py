"""A training whose loss is nan or infinite and stays so fails, with the step, the line and what it came from."""

from __future__ import annotations

import pytest
from gang import DIGITS, Trial

pytestmark = pytest.mark.distributed

LOSS = "return nn.functional.cross_entropy(output, target)"


def broken_at(step: int, where: str) -> str:
    """The standard training, in which a loss is nan from a step on."""
    return DIGITS.replace(LOSS, f"return nn.functional.cross_entropy(output, target) * ({where})").replace(
        "def loss(output, target,", f"START = {step}\ndef loss(output, target, model,"
    )


def place(source: str) -> str:
    """Where the loss function is, in the cell whose second line is the source's first."""
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
    """The logarithm of what a ReLU gives."""
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
    assert going.run().codes == [0]
    twice = broken_at(5, "float('inf') if 5 < taken < 8 and torch.is_grad_enabled() else 1.0")
    mended = Trial(tmp_path / "twice", source=twice, slots=1, options={"amp": "fp16"})
    ran = mended.run()
    assert ran.codes == [0], ran.logs()

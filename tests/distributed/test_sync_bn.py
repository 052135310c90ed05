"""Test that with `--sync-bn` two slots train like one: BatchNorm uses the statistics of the whole batch."""

from __future__ import annotations

import pytest
import torch
from gang import DIGITS, Trial

pytestmark = pytest.mark.distributed

SYNC = {"sync_bn": True}
# What differs from slot to slot is BatchNorm alone; momentum None averages the statistics of all batches.
NORMS = DIGITS.replace("nn.Dropout(dropout)", "nn.BatchNorm1d(width, momentum=None, affine=False)")
SORTED = NORMS.replace(
    "torch.randn(90, 16, generator=generator)", "torch.randn(90, 16, generator=generator).sort(0)[0]"
)
# AdamW would make whole steps of the rounding in gradients that are zero, as that of a bias before BatchNorm.
SMOOTH = SORTED.replace("nn.ReLU()", "nn.Tanh()")  # rounding shall not decide whether a unit is on
SKEWED = SMOOTH.replace("torch.optim.AdamW(params, lr=lr)", "torch.optim.SGD(params, lr=0.1, momentum=0.9)")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Provide the training on one slot, with torch's own BatchNorm."""
    trial = Trial(tmp_path_factory.mktemp("alone") / "trial", source=SKEWED, slots=1, options=SYNC)
    ran = trial.run()
    assert ran.codes == [0], ran.logs()
    return trial, ran


@pytest.mark.parametrize(
    ("slots", "backend"), [(2, "horovod"), (3, "torch"), pytest.param(2, "torch", marks=pytest.mark.long)]
)
def test_several_slots_train_what_one_does(alone, trial, slots, backend):
    expected, ran_alone = alone
    several = trial(source=SKEWED, slots=slots, backend=backend, options=SYNC)
    ran = several.run()
    assert set(ran.codes) == {0}, ran.logs()
    for name, tensor in expected.model().items():
        torch.testing.assert_close(several.model()[name], tensor, rtol=1e-3, atol=1e-4)
    found, wanted = (each.reports("training")[1]["loss"] for each in (ran, ran_alone))
    assert found == pytest.approx(wanted, rel=1e-5)


def test_without_it_each_slot_has_statistics_of_its_own(alone, trial):
    expected, _ = alone
    apart = trial(source=SKEWED)
    assert apart.run().codes == [0, 0]
    name = "1.running_mean"
    assert (apart.model()[name] - expected.model()[name]).abs().max() > 0.01


@pytest.mark.parametrize(("backend", "options"), [("torch", {"ema": 0.9, "amp": "bf16"}), ("horovod", {"clip": 0.5})])
def test_a_killed_training_goes_on_with_the_same_bits(tmp_path, backend, options):
    whole = Trial(tmp_path / "whole", backend=backend, options=SYNC | options)
    ran = whole.run()
    assert ran.codes == [0, 0], ran.logs()
    killed = Trial(tmp_path / "killed", backend=backend, options=SYNC | options, every="2steps")
    killed.start(hold=9).reaches(8).kill(1)
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0, 0], second.logs()
    assert killed.parts() == whole.parts()


def test_batches_with_fewer_samples_than_slots_are_refused_at_once(trial):
    ran = trial(source=DIGITS.replace("range(70)", "range(61)", 1), options=SYNC).run()
    assert set(ran.codes) == {1}
    assert "needs a sample on each of 2 slots, and the last batch of an epoch has 1" in ran.failures()[0].message
    assert ran.reports("training") == {}


GAN = """
import torch
from torch import nn
def train_data(): return list(torch.randn(48, 4, generator=torch.Generator().manual_seed(1)))
def model():
    def net(): return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    return {"gen": net(), "disc": net()}
def optimizer(gen, disc):
    return {"gen": torch.optim.SGD(gen.parameters(), 0.1), "disc": torch.optim.SGD(disc.parameters(), 0.1)}
def step_disc(batch, gen, disc):
    with torch.no_grad(): fake = gen(batch.flip(1))
    real = batch.clone().requires_grad_()
    score = disc(real)
    slope, = torch.autograd.grad(score.square().sum(), real, create_graph=True)
    return disc(fake).mean() - score.mean() + slope.square().mean()
def step_gen(batch, gen, disc): return -disc(gen(batch.flip(1))).mean()
"""


def test_steps_of_two_models_with_a_gradient_penalty_are_synchronized(tmp_path):
    """The gradient of the penalty passes through BatchNorm twice."""
    one, two = (Trial(tmp_path / str(n), source=GAN, slots=n, options=SYNC, batch_size=8) for n in (1, 2))
    for trial in (one, two):
        ran = trial.run()
        assert set(ran.codes) == {0}, ran.logs()
    for name, tensor in one.model().items():
        torch.testing.assert_close(two.model()[name], tensor, rtol=1e-3, atol=1e-4)

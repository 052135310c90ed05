"""Test that `--strategy fsdp2`, with rows of the model on each slot, trains the same as with whole models."""

from __future__ import annotations

import pytest
import torch
from gang import DIGITS, Trial

from kernel_backend.checkpoints.writer import decode

pytestmark = pytest.mark.distributed

SHARDED = {"strategy": "fsdp2"}
# 23 units: two slots have 12 and 11 rows of a layer.
SMOOTH = (
    DIGITS.replace("width=24", "width=23")
    .replace("nn.BatchNorm1d(width), ", "")
    .replace("nn.Dropout(dropout), ", "")
    .replace("torch.optim.AdamW(params, lr=lr)", "torch.optim.SGD(params, lr=0.1, momentum=0.9)")
)
DROPPED = (
    DIGITS + "def schedule(optimizer, steps): return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)\n"
)


@pytest.fixture(scope="module")
def replicated(tmp_path_factory):
    """Provide the training on two slots, each with the whole model."""
    trial = Trial(tmp_path_factory.mktemp("whole") / "trial", source=SMOOTH, options={"clip": 0.5, "ema": 0.9})
    ran = trial.run()
    assert ran.codes == [0, 0], ran.logs()
    return trial, ran


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}], ids=str)
def test_sharded_slots_train_what_whole_ones_do(replicated, trial, options):
    expected, ran_whole = replicated
    sharded = trial(source=SMOOTH, options=SHARDED | {"clip": 0.5, "ema": 0.9} | options)
    ran = sharded.run()
    assert ran.codes == [0, 0], ran.logs()
    for name, tensor in expected.model().items():
        torch.testing.assert_close(sharded.model()[name], tensor, rtol=1e-4, atol=1e-5)
    found, wanted = (each.reports("validation")[12] for each in (ran, ran_whole))
    assert found == pytest.approx(wanted, rel=1e-4)
    assert "no bit of the result, on 2 slots" in ran.started.guarantee


def test_each_rank_writes_its_rows(trial):
    sharded = trial(options=SHARDED)
    assert sharded.run().codes == [0, 0]
    assert {"model", "model.shard-0", "model.shard-1", "optimizer.shard-1"} <= sharded.parts().keys()
    manifest = sharded.newest()
    shapes = [decode(sharded.home.read(manifest, f"model.shard-{rank}"))["0.weight"].shape for rank in (0, 1)]
    assert shapes == [(12, 16), (12, 16)]


@pytest.mark.parametrize("options", [{"ema": 0.9, "amp": "bf16", "clip": 0.5}, {"rng": "stream"}], ids=str)
def test_a_killed_training_goes_on_with_the_same_bits(tmp_path, options):
    whole = Trial(tmp_path / "whole", source=DROPPED, options=SHARDED | options)
    ran = whole.run()
    assert ran.codes == [0, 0], ran.logs()
    killed = Trial(tmp_path / "killed", source=DROPPED, options=SHARDED | options, every="2steps")
    killed.start(hold=9).reaches(8).kill(1)
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0, 0], second.logs()
    assert killed.parts() == whole.parts()
    assert second.reports("validation")[12] == ran.reports("validation")[12]


def test_a_checkpoint_goes_on_with_any_number_of_slots(replicated, trial):
    expected, _ = replicated
    changing = trial(source=SMOOTH, options=SHARDED | {"clip": 0.5, "ema": 0.9})
    resumed = None
    for slots, until in ((2, 4), (3, 7), (1, 9), (2, None)):
        changing.slots = slots
        changing.options["until"] = until
        ran = changing.run(resumed)
        assert ran.codes == [0] * slots, ran.logs()
        resumed = changing.newest().id
    for name, tensor in expected.model().items():
        torch.testing.assert_close(changing.model()[name], tensor, rtol=1e-4, atol=1e-5)

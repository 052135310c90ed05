"""Test that `--batch-size auto` finds the largest batch that fits, and that results equal those with that number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gang import DIGITS, STAND, Attempt, Trial

from kernel_backend.model.experiment import AutoBatch
from kernel_backend.model.facts import BatchSize
from kernel_backend.model.reports import Fact

pytestmark = pytest.mark.distributed
# Each sample has some 8 MB of activations that the backward pass needs. What a rank may use is limited as by `ulimit`:
# to `room` MB more than it uses when the cell is imported.
WIDE = """
import os
import resource
import torch
from torch import nn
room = {room}[int(os.environ["RANK"])]
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData:"))
resource.setrlimit(resource.RLIMIT_DATA, ((used << 10) + (room << 20), resource.RLIM_INFINITY))
def train_data():
    x = torch.randn(70, 16, generator=torch.Generator().manual_seed(7))
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 1)
        self.drop = nn.Dropout(0.2)
    def forward(self, x):
        hidden = self.drop(self.norm(self.first(x)))
        wide = hidden.unsqueeze(1).expand(-1, 2**16, -1) * 1.5
        return self.last(wide.sigmoid().mean(1))
def model(): return Wide()
def optimizer(params): return torch.optim.AdamW(params, lr=1e-2)
def loss(output, target):
    stand()
    return nn.functional.mse_loss(output, target)
""" + STAND.replace("{", "{{").replace("}", "}}")
AMPLE = 10**5


def trial(folder: Path, room: list[int], size: int | None = None, **options: Any) -> Trial:
    """Return a trial that finds its batch size, unless it has one."""
    more = {"auto_batch": AutoBatch()} if size is None else {}
    return Trial(
        folder,
        source=WIDE.format(room=room),
        slots=len(room),
        batch_size=size or 32,
        epochs=1,
        options={**more, **options},
    )


def found(attempt: Attempt) -> BatchSize:
    """Return the batch size that an attempt has stored."""
    (fact,) = [each.value for each in attempt.records if isinstance(each, Fact) and each.name == "batch"]
    return BatchSize.model_validate(fact)


def tuned(attempt: Attempt) -> list[str]:
    """Return the notes of an attempt about the batch size that it found."""
    return [each for each in attempt.notes() if each.startswith("tuned: batch size ")]


def test_memory_limits_the_size_and_the_bits_are_those_of_a_fixed_one(tmp_path):
    auto = trial(tmp_path / "auto", [400])
    attempt = auto.run()
    assert attempt.codes == [0], attempt.logs()
    batch = found(attempt)
    assert 2 <= batch.size < 40
    assert tuned(attempt) == [f"tuned: batch size {batch.size} ({batch.reason})"]
    assert " does not fit in " in batch.reason
    assert attempt.started.steps_per_epoch == -(-70 // batch.size)
    fixed = trial(tmp_path / "fixed", [AMPLE], size=batch.size)
    assert fixed.run().codes == [0]
    assert auto.newest().step == fixed.newest().step
    assert auto.parts() == fixed.parts()


@pytest.mark.long
def test_ranks_take_the_size_that_fits_on_all_of_them(tmp_path):
    both = trial(tmp_path / "both", [AMPLE, 400])
    attempt = both.run()
    assert attempt.codes == [0, 0], attempt.logs()
    batch = found(attempt)
    assert batch.size % 2 == 0
    assert 4 <= batch.size < 70 - 70 % 2
    assert " does not fit in " in batch.reason
    fixed = trial(tmp_path / "fixed", [AMPLE, AMPLE], size=batch.size)
    assert fixed.run().codes == [0, 0]
    assert both.parts() == fixed.parts()


def test_the_user_limits_the_size(tmp_path):
    per_slot = trial(tmp_path / "per_slot", [AMPLE], per_slot_batch=True, auto_batch=AutoBatch(most=3))
    attempt = per_slot.run()
    assert attempt.codes == [0], attempt.logs()
    assert tuned(attempt) == ["tuned: batch size 3 per slot (at most 3, as requested)"]


def test_a_batch_that_is_cut_into_parts_is_a_multiple_of_them(tmp_path):
    auto = Trial(
        tmp_path / "auto", slots=2, epochs=1, options={"auto_batch": AutoBatch(), "logical_workers": 3, "accumulate": 2}
    )
    attempt = auto.run()
    assert attempt.codes == [0, 0], attempt.logs()
    assert found(attempt).size == 66


def test_a_model_that_does_not_fit_at_all_is_refused(tmp_path):
    attempt = trial(tmp_path / "auto", [12]).run()
    assert attempt.codes == [1], attempt.logs()
    (failure,) = attempt.failures().values()
    assert failure.type == "InvalidDefinition"
    assert failure.message.startswith("--batch-size auto found no size: 2 does not fit in ")


def test_a_dataloader_has_a_size_of_its_own(tmp_path):
    source = DIGITS.replace(
        "return torch.utils.data.Subset(dataset, range(70))",
        "return torch.utils.data.DataLoader(torch.utils.data.Subset(dataset, range(70)), batch_size=7)",
    )
    attempt = Trial(tmp_path / "auto", source=source, slots=1, options={"auto_batch": AutoBatch()}).run()
    assert "train_data() returned a DataLoader, which has a batch size of its own" in attempt.logs()


def test_an_error_of_the_users_code_is_shown_as_ever(tmp_path):
    source = DIGITS.replace("stand()\n    return", "output = output[:, :1] @ output\n    return")
    attempt = Trial(tmp_path / "auto", source=source, slots=1, options={"auto_batch": AutoBatch()}).run()
    assert attempt.codes == [1]
    assert "cell [4] line" in attempt.failures()[0].frames[-1].where
    assert attempt.failures()[0].type == "RuntimeError"
    assert (found(attempt).size, found(attempt).reason[:22]) == (32, "2 failed: RuntimeError")


def test_the_data_limit_the_size_and_nothing_of_the_tried_steps_is_left(tmp_path):
    """Files and output of the user's code during the trials of batch sizes are not part of the training."""
    source = DIGITS.replace("    stand()\n", "    print('a step')\n    open('seen', 'a').write('x')\n    stand()\n", 1)
    auto = Trial(tmp_path / "auto", source=source, slots=1, options={"auto_batch": AutoBatch()}, epochs=1)
    attempt = auto.run()
    assert attempt.codes == [0], attempt.logs()
    assert tuned(attempt) == ["tuned: batch size 70 (the data has no more samples)"]
    assert auto.newest().step == 1
    steps = attempt.started.steps_per_epoch + 1  # and its validation
    assert (tmp_path / "auto" / "seen").read_text() == "x" * steps
    assert attempt.logs().count("a step") == steps


def test_a_found_size_is_used_by_a_later_attempt(tmp_path):
    auto = Trial(tmp_path / "auto", slots=1, options={"auto_batch": AutoBatch(most=2)}, epochs=1, every="2steps")
    # Beyond the two steps with which the size is tried, for they stand there too.
    attempt = auto.start(hold=4).reaches(4)
    attempt.wait(lambda: auto.pinned() is not None)
    killed = attempt.kill(0)
    batch = found(killed)
    auto.batch = batch
    resumed = auto.run(resume_from=auto.pinned())
    assert resumed.codes == [0], resumed.logs()
    assert found(resumed) == batch
    assert tuned(resumed) == []
    fixed = Trial(tmp_path / "fixed", slots=1, batch_size=batch.size, epochs=1, every="2steps")
    assert fixed.run().codes == [0]
    assert auto.parts() == fixed.parts()

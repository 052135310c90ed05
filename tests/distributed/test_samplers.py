"""Test a user's sampler in a real gang: exact after a kill, and refused unless it is equal on all ranks."""

from __future__ import annotations

import pytest
from gang import DIGITS, Trial

pytestmark = pytest.mark.distributed

TRAIN = "def train_data(dataset): return torch.utils.data.Subset(dataset, range(70))"
WEIGHTED = """def train_data(dataset):
    weights = [1.0] * 60 + [9.0] * 10
    sampler = torch.utils.data.WeightedRandomSampler(weights, 70, generator=torch.Generator())
    return torch.utils.data.DataLoader(torch.utils.data.Subset(dataset, range(70)), batch_size=12, sampler=sampler)
"""
BY_RANK = """class ByRank(torch.utils.data.Sampler):
    def __iter__(self): return iter(range(int(os.environ["RANK"]), 70, int(os.environ["WORLD_SIZE"])))
def train_data(dataset): return torch.utils.data.DataLoader(dataset, batch_size=12, sampler=ByRank())
"""


def test_a_training_with_a_sampler_that_is_killed_ends_with_the_same_bits(tmp_path):
    source = DIGITS.replace(TRAIN, WEIGHTED)
    whole = Trial(tmp_path / "whole", source=source)
    ran = whole.run()
    assert ran.codes == [0, 0], ran.logs()
    killed = Trial(tmp_path / "killed", source=source, every="2steps", params={"pause": 0.03})
    killed.start(hold=9).reaches(8).kill(1)
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0, 0], second.logs()
    assert killed.parts() == whole.parts()


def test_a_sampler_that_splits_by_rank_is_refused(trial):
    ran = trial(source=DIGITS.replace(TRAIN, BY_RANK)).run()
    assert ran.codes == [1, 1]
    assert "gives other indices on each rank" in ran.failures()[0].message

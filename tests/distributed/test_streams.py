"""Test streams, which can only be read from their beginning: equal bits after a kill."""

from __future__ import annotations

import pytest
from gang import DIGITS, Trial

pytestmark = pytest.mark.distributed

# 70 samples, which nobody can ask for how many they are.
STREAM = DIGITS.replace(
    "def train_data(dataset): return torch.utils.data.Subset(dataset, range(70))",
    """
import random
class Counted(torch.utils.data.IterableDataset):
    def __init__(self, dataset): self.dataset = dataset
    def __iter__(self):
        for index in range(70):
            x, y = self.dataset[index]
            yield x + 0.1 * torch.randn(16) * random.random(), y
class Placed(Counted):
    def __init__(self, dataset):
        super().__init__(dataset)
        self.place = 0
    def state_dict(self): return {"place": self.place}
    def load_state_dict(self, state): self.place = state["place"]
    def __iter__(self):
        while self.place < 70:
            self.place += 1
            x, y = self.dataset[self.place - 1]
            yield x + 0.1 * torch.randn(16) * random.random(), y
        self.place = 0
class Learning(Placed):
    passes = 0
    def state_dict(self): return {"place": self.place, "passes": self.passes}
    def load_state_dict(self, state): self.place, self.passes = state["place"], state["passes"]
    def __iter__(self):
        for x, y in super().__iter__():
            yield x * (1 + self.passes), y
        self.passes += 1
def train_data(dataset, kind="Counted"): return globals()[kind](dataset)
""",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    trial = Trial(tmp_path_factory.mktemp("stream") / "trial", source=STREAM)
    ran = trial.run()
    assert ran.codes == [0, 0], ran.logs()
    return trial, ran


def test_a_stream_is_trained_for_its_epochs_though_nobody_knew_their_length(whole):
    trial, ran = whole
    assert (ran.started.steps_per_epoch, ran.started.total_steps) == (None, None)
    assert trial.newest().step == 12
    assert sorted(ran.reports("validation")) == [6, 12]


@pytest.mark.parametrize(("kind", "workers"), [("Counted", 0), ("Counted", 1), ("Placed", 0), ("Placed", 1)])
def test_a_killed_stream_goes_on_with_the_same_bits(whole, tmp_path, kind, workers):
    expected, quiet = whole
    params, options = {"pause": 0.03, "kind": kind}, {"loader_workers": workers}
    killed = Trial(tmp_path / "trial", source=STREAM, every="2steps", params=params, options=options)
    first = killed.start(hold=11).reaches(9)
    first.wait(lambda: "8-1" in first.committed())  # at the one before, of step 6, there is nothing to read again
    first.kill(1)
    again = killed.run(resume_from=killed.pinned())
    assert again.codes == [0, 0], again.logs()
    assert killed.parts() == expected.parts()
    assert again.reports("validation")[12] == quiet.reports("validation")[12]
    skipped = [note for note in again.notes() if "skip" in note or "read" in note]
    assert len(skipped) == (kind == "Counted")


def test_what_a_stream_counts_over_its_passes_is_as_it_was_after_a_resume_between_two(tmp_path):
    trial = Trial(tmp_path / "trial", source=STREAM, every="6steps", params={"kind": "Learning"})
    ran = trial.run()
    assert ran.committed() == ["6-1", "12-1"], ran.logs()
    expected = trial.parts()
    again = trial.run(resume_from="6-1")
    assert again.started.resumed_from == "6-1", again.logs()
    assert trial.newest().id == "12-2"
    assert trial.parts() == expected

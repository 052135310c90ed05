"""Test that data functions which take the model get the trained one, not a copy in a loader process."""

from __future__ import annotations

import pytest
from gang import DIGITS

pytestmark = pytest.mark.distributed

TRAIN = "def train_data(dataset): return torch.utils.data.Subset(dataset, range(70))"
LOSS = "return nn.functional.cross_entropy(output, target)"
# Each sample tells whether the model's first weights are still as they were made.
WATCHING = """class Watching(torch.utils.data.Dataset):
    def __init__(self, dataset, model):
        self.dataset, self.model, self.first = dataset, model, model[0].weight.detach().clone()
    def __len__(self): return 70
    def __getitem__(self, index):
        x, y = self.dataset[index]
        return x, (y, float(not torch.equal(self.model[0].weight, self.first)))
def watched(dataset, model): return Watching(dataset, model)
def train_data(watched): return torch.utils.data.DataLoader(watched, batch_size=12, num_workers=2)
"""
LOGGED = """
    y, moved = (target, torch.ones(1)) if torch.is_tensor(target) else target
    return nn.functional.cross_entropy(output, y), {"moved": moved.mean()}
"""
SOURCE = DIGITS.replace(TRAIN, WATCHING).replace(LOSS, LOGGED)


def test_samples_are_made_with_the_model_as_it_is_at_their_step(trial):
    ran = trial(source=SOURCE, epochs=1).run()
    assert ran.codes == [0, 0], ran.logs()
    assert [values["moved"] for values in ran.reports("training").values()] == [0, 1, 1, 1, 1, 1]


def test_loader_processes_that_were_asked_for_are_refused(trial):
    ran = trial(source=SOURCE, slots=1, options={"loader_workers": 2}).run()
    assert ran.codes == [1]
    assert "train_data() asks for model, and a loader process has a copy" in ran.failures()[0].message


def test_a_stream_that_is_read_with_the_model_is_not_promised_to_be_exact(trial):
    stream = WATCHING.replace("Dataset)", "IterableDataset)").replace(
        "    def __getitem__(self, index):\n        x, y = self.dataset[index]\n        return x",
        "    def __iter__(self):\n      for index in range(70):\n        x, y = self.dataset[index]\n        yield x",
    )
    ran = trial(source=SOURCE.replace(WATCHING, stream), slots=1, epochs=1).run()
    assert ran.codes == [0], ran.logs()
    assert ran.started.guarantee.startswith("not reproducible: train_data() reads a stream with the model")

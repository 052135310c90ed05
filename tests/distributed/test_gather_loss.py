"""Test that `--gather-loss` computes the loss over the whole batch, on any number of slots."""

from __future__ import annotations

import pytest
import torch
from gang import Trial

pytestmark = pytest.mark.distributed

# The temperature is the loss function's own, and a parameter of the model all the same. 29 samples leave a batch of 5.
CONTRASTIVE = """
import torch
from torch import nn
def dataset():
    x = torch.randn(29, 8, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.TensorDataset(x, torch.arange(29))
def train_data(dataset): return dataset
def validation_data(dataset): return torch.utils.data.Subset(dataset, range(11))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.temperature = nn.Linear(8, 4), nn.Parameter(torch.tensor(0.5))
    def forward(self, x):
        y = torch.tanh(self.inner(x))
        return {"left": y, "pair": (y.square(), x)}
def model(): return Net()
def optimizer(params): return torch.optim.SGD(params, lr=0.5)
def loss(output, target, model):
    scores = output["left"] @ output["pair"][0].T / model.temperature
    labels = torch.arange(len(target), device=scores.device)
    return nn.functional.cross_entropy(scores, labels), {"largest": scores.max(), "per": target.float()}
"""
NOTE = "depends on how many slots share a batch"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Provide the training in one process, whose loss is always that of the whole batch."""
    trial = Trial(tmp_path_factory.mktemp("alone") / "trial", source=CONTRASTIVE, slots=1)
    ran = trial.run()
    assert ran.codes == [0], ran.logs()
    return trial, ran


def same(trial, ran, alone) -> bool:
    expected, before = alone
    for name, tensor in expected.model().items():
        torch.testing.assert_close(trial.model()[name], tensor)
    for kind in ("training", "validation"):
        for step, values in before.reports(kind).items():
            assert ran.reports(kind)[step] == pytest.approx(values, rel=1e-4)
    return True


@pytest.mark.parametrize(("slots", "backend"), [(2, "torch"), (2, "horovod"), (4, "torch")])
def test_any_number_of_slots_trains_what_one_does(trial, alone, slots, backend):
    gathered = trial(source=CONTRASTIVE, slots=slots, backend=backend, options={"gather_loss": True})
    ran = gathered.run()
    assert ran.codes == [0] * slots, ran.logs()
    assert same(gathered, ran, alone)
    assert not [text for text in ran.notes() if NOTE in text]


def test_with_logical_workers_the_bits_are_those_of_any_slots(tmp_path, alone):
    options = {"gather_loss": True, "logical_workers": 4}
    one, two = (Trial(tmp_path / str(slots), source=CONTRASTIVE, slots=slots, options=options) for slots in (1, 2))
    for trial in (one, two):
        ran = trial.run()
        assert set(ran.codes) == {0}, ran.logs()
        assert same(trial, ran, alone)
    assert one.parts() == two.parts()


def test_without_it_the_loss_is_another_and_that_is_told(trial, alone):
    ran = trial(source=CONTRASTIVE).run()
    assert ran.codes == [0, 0], ran.logs()
    assert [text for text in ran.notes() if NOTE in text and "--gather-loss" in text]
    assert ran.reports("training")[1]["loss"] != pytest.approx(alone[1].reports("training")[1]["loss"], rel=1e-2)


def test_outputs_without_a_row_for_each_sample_are_refused(trial):
    source = CONTRASTIVE.replace('"left": y,', '"left": y, "sum": y.sum(),')
    ran = trial(source=source, options={"gather_loss": True}).run()
    assert set(ran.codes) == {1}
    assert "each tensor of it must have a row for each sample" in ran.failures()[0].message

"""Test uneven and empty shares, unused parameters and logged values: a gang computes the same as one process."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.distributed

# 17 samples in batches of 4: the last batch has one sample, so that two of three ranks have nothing.
UNEVEN = """
import torch
from torch import nn

def samples():
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(5, generator=generator), torch.randn(2, generator=generator)) for _ in range(17)]
def train_data(samples): return samples
def validation_data(samples): return samples[:7]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.usual, self.rare = nn.Linear(5, 2), nn.Linear(5, 2)
        self.never = nn.Parameter(torch.ones(3))
    def forward(self, x):
        out, odd = self.usual(x), x[:, 0] > 1.0
        if odd.any():
            out = out.index_add(0, odd.nonzero().flatten(), self.rare(x[odd]))
        return out

def model(): return Net()
def optimizer(params): return torch.optim.AdamW(params, lr=1e-2, weight_decay=0.1)
def loss(output, target):
    value = nn.functional.mse_loss(output, target)
    return value, {"distance": (output - target).abs().mean()}
def metrics(output, target): return {"near": ((output - target).abs().sum(1) < 2.0).float(), "target": target}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    from gang import Trial

    def run(slots, backend):
        trial = Trial(
            tmp_path_factory.mktemp("uneven") / "trial",
            source=UNEVEN,
            slots=slots,
            backend=backend,
            epochs=3,
            batch_size=4,
        )
        attempt = trial.run()
        assert set(attempt.codes) == {0}, attempt.logs()
        return trial, attempt

    return run(1, "torch"), run(3, "horovod")


def test_uneven_shares_are_weighted_by_their_samples(trained):
    (alone, _), (gang, _) = trained
    one, three = alone.model(), gang.model()
    for name, tensor in one.items():
        torch.testing.assert_close(three[name], tensor, rtol=1e-5, atol=1e-6)


def test_a_parameter_that_no_rank_uses_has_no_gradient_and_so_no_decay(trained):
    for trial, _ in trained:
        assert trial.model()["never"].tolist() == [1.0, 1.0, 1.0]


def test_metrics_are_right_at_any_number_of_ranks(trained):
    (_, alone), (_, gang) = trained
    for step, metrics in alone.reports("validation").items():
        assert gang.reports("validation")[step]["near"] == metrics["near"]
        assert gang.reports("validation")[step] == pytest.approx(metrics, rel=1e-5)


def test_training_reports_are_of_the_global_batch_with_the_values_that_loss_logs(trained):
    (_, alone), (_, gang) = trained
    assert set(alone.reports("training")) == set(range(1, 16))
    for step, metrics in alone.reports("training").items():
        assert set(metrics) == {"loss", "distance"}
        assert gang.reports("training")[step] == pytest.approx(metrics, rel=1e-4)


@pytest.mark.parametrize(("slots", "batch_size"), [(1, 23), (2, 23), (2, 17), (4, 22)])
def test_a_small_last_batch_leaves_no_slot_with_one_sample_for_batch_norm(trial, slots, batch_size):
    """The last batches of 70 samples have 1, 2 and 4 samples."""
    trained = trial(slots=slots, batch_size=batch_size, epochs=1)
    ran = trained.run()
    assert set(ran.codes) == {0}, ran.logs()


def test_batch_norm_with_one_sample_is_told_where_it_cannot_be_helped(trial):
    ran = trial(slots=1, batch_size=1).run()
    assert ran.codes == [1]
    assert "BatchNorm cannot train on one sample, and this batch of 1" in ran.failures()[0].message

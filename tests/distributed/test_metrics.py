"""Test that `metrics` cover the whole validation set, on any number of slots and with both backends."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from gang import DIGITS, Trial
from sklearn.metrics import f1_score, r2_score, roc_auc_score

pytestmark = pytest.mark.distributed

METRICS = 'def metrics(output, target): return {"accuracy": (output.argmax(1) == target).float()}\n'
# None of these but `accuracy` is a mean over samples; the whole validation set is of both classes, not every share is.
NUMBERS = """
from sklearn.metrics import f1_score, r2_score, roc_auc_score
def metrics(output, target, epoch, batch):
    scores = output.softmax(1)[:, 1]
    return {
        "f1": f1_score(target, output.argmax(1), average="macro"),
        "rmse": (scores - target).square().mean().sqrt(),
        "r2": r2_score(target, scores),
        "auc": roc_auc_score(target, scores),
        "accuracy": (output.argmax(1) == target).float().mean(),
        "first": batch[0][0, 0],
        "epoch": epoch,
    }
"""
OBJECTS = """
import torchmetrics
class Spread:
    def reset(self): self.values = []
    def update(self, output, target): self.values.append(output[:, 0])
    def compute(self): return torch.cat(self.values).std()
class Auc(torchmetrics.classification.MulticlassAUROC):
    # torchmetrics takes a batch whose outputs all happen to be from 0 to 1 for probabilities.
    def update(self, output, target): super().update(output.softmax(1), target)
def metrics():
    both = torchmetrics.MetricCollection({
        "f1": torchmetrics.F1Score(task="multiclass", num_classes=2, average="macro"),
        "accuracy": torchmetrics.Accuracy(task="multiclass", num_classes=2, average="micro"),
    })
    return {"both": both, "auc": Auc(num_classes=2), "spread": Spread()}
"""
EVERY_SETTING = pytest.mark.parametrize(
    ("slots", "backend"),
    [
        (1, "torch"),
        (4, "torch"),
        (2, "horovod"),
        pytest.param(2, "torch", marks=pytest.mark.long),
        pytest.param(4, "horovod", marks=pytest.mark.long),
    ],
)


def outputs(trial: Trial) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return inputs, targets, and the newest checkpoint's outputs of the validation set."""
    module: dict = {}
    exec(DIGITS, module)
    x, y = module["dataset"]()[70:90]
    net = module["model"]().eval()
    net.load_state_dict(trial.model())
    with torch.no_grad():
        return x, y, net(x)


@EVERY_SETTING
def test_a_number_is_that_of_the_whole_validation_set(trial, slots, backend):
    trained = trial(source=DIGITS.replace(METRICS, NUMBERS), slots=slots, backend=backend)
    ran = trained.run()
    assert ran.codes == [0] * slots, ran.logs()
    first, second = ran.reports("validation").values()
    x, target, output = outputs(trained)
    scores = output.softmax(1)[:, 1]
    expected = {
        "f1": f1_score(target, output.argmax(1), average="macro"),
        "rmse": float((scores - target).square().mean().sqrt()),
        "r2": r2_score(target, scores),
        "auc": roc_auc_score(target, scores),
        "accuracy": float((output.argmax(1) == target).float().mean()),
        "first": float(x[0, 0]),
        "epoch": 1.0,
    }
    assert {name: second[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert first["epoch"] == 0.0


@pytest.mark.skipif(importlib.util.find_spec("torchmetrics") is None, reason="torchmetrics is not installed")
@EVERY_SETTING
def test_objects_of_torchmetrics_are_merged_over_all_ranks(trial, slots, backend):
    trained = trial(source=DIGITS.replace(METRICS, OBJECTS), slots=slots, backend=backend)
    ran = trained.run()
    assert ran.codes == [0] * slots, ran.logs()
    _, target, output = outputs(trained)
    expected = {
        "f1": f1_score(target, output.argmax(1), average="macro"),
        "accuracy": float((output.argmax(1) == target).float().mean()),
        "auc": roc_auc_score(target, output.softmax(1)[:, 1]),
        "spread": float(output[:, 0].std()),
    }
    found = ran.reports("validation")[12]
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5)


# Widths of the samples of three validation batches; nobody collates the third.
WIDTHS = """
class Sequences(torch.utils.data.Dataset):
    def __init__(self, widths): self.widths = widths
    def __len__(self): return len(self.widths)
    def __getitem__(self, index): return torch.ones(self.widths[index], 1), torch.ones(self.widths[index])
def padded(samples):
    assert all(len(x) for x, _ in samples), "the validation went on"
    return tuple(nn.utils.rnn.pad_sequence(column, batch_first=True) for column in zip(*samples))
def loader(widths): return torch.utils.data.DataLoader(Sequences(widths), batch_size=4, collate_fn=padded)
def train_data(): return loader([3] * 8)
def validation_data(): return loader({widths} + [0] * 4)
def model():
    return nn.Sequential(nn.Linear(1, 1), nn.Flatten(1))
def loss(output, target): return (output - target).square().mean()
def metrics(output, target): return {{"rmse": (output - target).square().mean().sqrt()}}
"""


@pytest.mark.parametrize(
    ("backend", "widths", "says"),
    [
        ("horovod", [4] * 4 + [6] * 4, "(2, 4) in batch 1 on rank 0 and (2, 6) in batch 2 on rank 0"),
        ("torch", [4] * 4 + [5, 5, 4, 4], "(2, 4) in batch 1 on rank 0 and (2, 5) in batch 2 on rank 0"),
        ("torch", [4, 4, 7, 7] + [4] * 4, "(2, 4) in batch 1 on rank 0 and (2, 7) in batch 1 on rank 1"),
    ],
    ids=["both ranks", "one rank", "between the ranks"],
)
def test_batches_of_other_widths_end_every_rank_with_the_same_refusal(trial, backend, widths, says):
    source = DIGITS[: DIGITS.index("def dataset()")] + WIDTHS.format(widths=widths)
    ran = trial(source=source, batch_size=4, backend=backend).run()
    failures = ran.failures()
    assert sorted(failures) == [0, 1], ran.logs()
    assert {each.type for each in failures.values()} == {"InvalidDefinition"}
    assert {each.message for each in failures.values()} == {
        "metrics() returns a number (rmse), so it is called once with output and target of all validation samples, "
        f"and batches of output differ in shape, {says}: pad all batches to one width (in collate_fn), or return one "
        "value per sample, or objects of torchmetrics, which are updated batch by batch: def metrics(): return {...}"
    }

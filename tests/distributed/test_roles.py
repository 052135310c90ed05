"""Test the roles collate, sampler, augment, on_epoch and test_data in real gangs."""

from __future__ import annotations

import pytest
from gang import DIGITS, Trial

from kernel_backend.model.reports import ArtifactSaved, Fact, Started

pytestmark = pytest.mark.distributed

# The same task, its samples as dicts that only a collate function of one's own can put together.
RECORDS = (
    DIGITS.replace(
        "return torch.utils.data.Subset(dataset, range(70))", "return [{'x': x, 'y': int(y)} for x, y in dataset][:70]"
    ).replace(
        "return torch.utils.data.Subset(dataset, range(70, 90))",
        "return [{'x': x, 'y': int(y)} for x, y in dataset][70:]",
    )
    + """
def collate(samples):
    return torch.stack([each["x"] for each in samples]), torch.tensor([each["y"] for each in samples])
"""
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Provide a training on the digits without any of these roles."""
    trial = Trial(tmp_path_factory.mktemp("plain") / "trial")
    ran = trial.run()
    assert ran.codes == [0, 0], ran.logs()
    return trial, ran


@pytest.mark.parametrize("workers", [0, 2])
def test_collate_puts_samples_together_in_training_and_validation(plain, tmp_path, workers):
    trial = Trial(tmp_path / "trial", source=RECORDS, options={"loader_workers": workers})
    ran = trial.run()
    assert ran.codes == [0, 0], ran.logs()
    assert trial.parts()["model"] == plain[0].parts()["model"]
    assert ran.reports("validation") == plain[1].reports("validation")


def test_augment_changes_training_batches_alone_and_draws_alike_after_a_kill(plain, tmp_path):
    source = DIGITS + "def augment(batch):\n    x, y = batch\n    return x + torch.randn_like(x), y\n"
    whole = Trial(tmp_path / "whole", source=source)
    assert whole.run().codes == [0, 0]
    assert whole.parts()["model"] != plain[0].parts()["model"]
    killed = Trial(tmp_path / "killed", source=source, every="2steps", params={"pause": 0.03})
    killed.start(hold=9).reaches(5).kill(1)
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0, 0], second.logs()
    assert killed.parts() == whole.parts()


def test_augment_leaves_the_validation_as_it_is(tmp_path):
    source = DIGITS.replace("def metrics(output, target)", "def other(output, target)") + (
        "def augment(batch): return torch.zeros_like(batch[0]), batch[1]\n"
        "def metrics(output, input): return {'zeros': (input == 0).all(1).float()}\n"
    )
    ran = Trial(tmp_path / "trial", source=source, epochs=1).run()
    assert ran.codes == [0, 0], ran.logs()
    assert ran.reports("validation")[6]["zeros"] == 0.0


SAMPLER = """
def sampler(train_data):
    return torch.utils.data.WeightedRandomSampler([1.0] * 10 + [0.0] * 60, 24)
"""
ON_EPOCH = """
def on_epoch(model, epoch, run):
    assert not model.training
    torch.rand(3)
    path = run.folder / "seen.json"
    path.write_text('{"epoch": %d}' % epoch)
    run.artifact(f"epoch-{epoch}", path)
"""


def test_a_sampler_chooses_the_samples_of_training(tmp_path):
    trial = Trial(tmp_path / "trial", source=DIGITS + SAMPLER)
    ran = trial.run()
    assert ran.codes == [0, 0], ran.logs()
    assert (ran.started.steps_per_epoch, ran.started.total_steps) == (2, 4)
    delivered = next(each.value for each in ran.records if isinstance(each, Fact) and each.name == "delivered")
    assert delivered["samples"] == 24


@pytest.mark.parametrize("options", [{}, {"rng": "stream"}], ids=str)
def test_on_epoch_saves_artifacts_and_changes_no_bit(tmp_path, options):
    trial = Trial(tmp_path / "trial", source=DIGITS + ON_EPOCH, options=options)
    without = Trial(tmp_path / "without", options=options)
    ran = trial.run()
    assert ran.codes == without.run().codes == [0, 0], ran.logs()
    assert [each.name for each in ran.records if isinstance(each, ArtifactSaved)] == ["epoch-0", "epoch-1"]
    assert trial.parts() == without.parts()


TESTED = DIGITS + "def test_data(dataset): return torch.utils.data.Subset(dataset, range(80, 90))\n"


def test_test_data_is_evaluated_with_the_best_weights(tmp_path):
    """The weights deteriorate, so that the first epoch's are the best."""
    source = TESTED.replace("lr=1e-2", "lr=5.0").replace("range(70, 90)", "range(80, 90)")
    trial = Trial(tmp_path / "trial", source=source, epochs=3)
    ran = trial.run()
    assert ran.codes == [0, 0], ran.logs()
    validations = ran.reports("validation")
    best = min(validations, key=lambda step: validations[step]["loss"])
    assert best != 18
    (fact,) = [each.value for each in ran.records if isinstance(each, Fact) and each.name == "test"]
    assert fact["metrics"] == pytest.approx(validations[best])
    assert fact["checkpoint"].startswith(f"{best}-")
    assert any(f"weights of step {best}, the best with loss" in each for each in ran.notes())
    assert trial.newest().step == 18


def test_test_data_is_evaluated_though_the_training_was_killed_after_its_last_checkpoint(tmp_path):
    trial = Trial(tmp_path / "trial", source=TESTED, epochs=1)
    assert trial.run().codes == [0, 0]
    again = trial.run(resume_from=trial.pinned())
    assert again.codes == [0, 0], again.logs()
    assert any(each.startswith("test: loss") for each in again.notes())


VIEWS = """
import torch
from torch import nn
def train_data():
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(3))
    return {data}
def model(): return {model}
def optimizer(params): return torch.optim.SGD(params, lr=0.1)
def loss({loss}
"""
TWO = "class Two(nn.Linear):\n    def forward(self, a, b): return super().forward(a), super().forward(b)\n"
WHOLE = {
    "one tensor a sample": ("x", "nn.Linear(4, 4)", "output, input): return (output - input).square().mean()"),
    "tuples of one": (
        "torch.utils.data.TensorDataset(x)",
        "nn.Linear(4, 4)",
        "output, input): return (output - input).square().mean()",
    ),
    "two views": (
        "torch.utils.data.TensorDataset(x, x + 1)",
        "Two(4, 2)",
        "output): return (output[0] - output[1]).square().mean()",
    ),
    "labels that nothing takes": (
        "torch.utils.data.TensorDataset(x, x.sum(1))",
        "nn.Linear(4, 4)",
        "output, input): return (output - input).square().mean()",
    ),
    "a dict of losses": (
        "torch.utils.data.TensorDataset(x, x.sum(1))",
        "nn.Linear(4, 1)",
        "output, target): return {'near': output.abs().mean(), 'far': output.square().mean()}",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_batch_without_a_target_is_the_input(tmp_path, name):
    data, model, loss = WHOLE[name]
    data = "list(x)" if data == "x" else data
    source = VIEWS.format(data=data, model=model, loss=loss).replace("def train_data", f"{TWO}def train_data")
    ran = Trial(tmp_path / "trial", source=source, epochs=1).run()
    assert ran.codes == [0, 0], ran.logs()
    first = ran.reports("training")[1]
    if name == "a dict of losses":
        assert first["loss"] == pytest.approx(first["near"] + first["far"])


CENTERED = DIGITS.replace(
    "def loss(output, target, pause=0.0):",
    "center, history = torch.zeros(2), []\ndef loss(output, target, pause=0.0):\n    global center\n"
    "    history.append(output.detach().mean())\n"
    "    center = 0.9 * center + 0.1 * output.detach().mean(0)\n    output = output - center",
)


def test_what_a_loss_keeps_between_batches_is_named_in_what_is_promised(tmp_path):
    ran = Trial(tmp_path / "trial", source=CENTERED, epochs=1, slots=1).run()
    assert ran.codes == [0], ran.logs()
    (started,) = (each for each in ran.records if isinstance(each, Started))
    assert started.guarantee.startswith(
        "not reproducible: center: a function keeps it from batch to batch, each slot its own"
    )
    assert [each for each in ran.notes() if each.startswith("history: a function fills it from batch to batch")]


# mixup as it is mostly written, in four items.
MIXUP = (
    DIGITS[: DIGITS.index("def loss")]
    + """
def augment(batch):
    x, y = batch
    lam, other = LAM, torch.randperm(len(x))
    return lam * x + (1 - lam) * x[other], y, y[other], lam
def loss(output, target):
    if not isinstance(target, tuple):
        return nn.functional.cross_entropy(output, target)
    y_a, y_b, lam = target
    return lam * nn.functional.cross_entropy(output, y_a) + (1 - lam) * nn.functional.cross_entropy(output, y_b)
"""
)


@pytest.mark.parametrize("lam", ["torch.rand(())", "float(torch.rand(()))"])
def test_an_augment_that_returns_more_items_gives_the_loss_all_but_the_inputs(tmp_path, lam):
    ran = Trial(tmp_path / "trial", source=MIXUP.replace("LAM", lam)).run()
    assert ran.codes == [0, 0], ran.logs()
    assert {*ran.reports("validation")} == {6, 12}
    assert not [each for each in ran.notes() if "mean over" in each]


# A model with the signature of torchvision's detection models: losses in training, a dict per sample otherwise.
DETECTION = """
import torch
from torch import nn
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.box = nn.Linear(4, 2)
    def forward(self, images, targets=None):
        found = [self.box(each) for each in images]
        if not self.training:
            return [{"boxes": each.detach()} for each in found]
        assert targets is not None, "targets should not be none when in training mode"
        return {"box": torch.stack([(a - b["boxes"]).square().mean() for a, b in zip(found, targets)]).mean()}
def samples(count, seed):
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return [(each, {"boxes": each[:2]}) for each in x]
def train_data(): return samples(30, 0)
def validation_data(): return samples(10, 1)
def collate(batch): return tuple(zip(*batch))
def model(): return Detector()
def optimizer(params): return torch.optim.SGD(params, lr=0.1)
def metrics(output, target):
    return {"near": torch.stack([(a["boxes"] - b["boxes"]).abs().mean() for a, b in zip(output, target)])}
"""
LOSSES = (
    "def loss(output): return sum(output.values())",
    "def loss(model, batch):\n    found = model(*batch)\n    return sum(found.values())",
    "def step(model, batch): return model(*batch)",
)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_model_that_computes_its_losses_trains_alike_however_its_loss_is_written(tmp_path, slots):
    weights, says = [], []
    for number, loss in enumerate(LOSSES):
        trial = Trial(tmp_path / str(number), source=DETECTION + loss, epochs=2, slots=slots)
        ran = trial.run()
        assert ran.codes == [0] * slots, ran.logs()
        first, last = ran.reports("validation").values()
        assert {*first} == {"near"}
        assert last["near"] < first["near"]
        weights.append(trial.parts()["model"])
        says.append([each for each in ran.notes() if "validations have no loss" in each])
    assert weights[0] == weights[1] == weights[2]
    assert [len(each) for each in says] == [1, 1, 1]
    assert "raised AttributeError: 'list' object has no attribute 'values'" in says[1][0]


# The same task with a model, a loss, an optimizer and data that are assigned, as notebooks have them.
ASSIGNED = """
data = dataset()
train_set, val_set = torch.utils.data.random_split(data, [70, 20])
train_loader = torch.utils.data.DataLoader(train_set, batch_size=12, shuffle=True)
val_loader = torch.utils.data.DataLoader(val_set, batch_size=12)
net = nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 2))
cross_entropy = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.5]))
def loss(output, target):
    stand()
    return cross_entropy(output, target)
metrics = {"accuracy": torchmetrics.classification.MulticlassAccuracy(2, average="micro")}
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
"""
ASSIGNED = "import torchmetrics\n" + DIGITS[: DIGITS.index("def train_data")] + ASSIGNED


def test_values_of_the_cell_train_and_go_on_with_the_same_bits_after_a_kill(tmp_path):
    whole = Trial(tmp_path / "whole", source=ASSIGNED)
    ran = whole.run()
    assert ran.codes == [0, 0], ran.logs()
    assert {*ran.reports("validation")[12]} == {"loss", "accuracy"}
    assert 0.5 < ran.reports("validation")[12]["accuracy"] < 1.0
    killed = Trial(tmp_path / "killed", source=ASSIGNED, every="2steps")
    killed.start(hold=9).reaches(5).kill(1)
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0, 0], second.logs()
    assert killed.parts() == whole.parts()
    assert second.reports("validation")[12] == ran.reports("validation")[12]

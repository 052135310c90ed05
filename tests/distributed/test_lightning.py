"""Test a LightningModule with Lightning's own Trainer: the bits of Lightning alone, also after every kill."""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch
from form_contract import FormContract
from gang import STAND, Trial

from kernel_backend.runner.determinism.seeds import mix, reseed

pytestmark = pytest.mark.distributed

# As its author would write it, with the data in the module, a schedule, dropout, BatchNorm and collected outputs.
DIGITS = f"""
import time
import torch
import torchmetrics
import lightning as L
from collections import deque
from torch import nn
{STAND}
window = deque(maxlen=3)
def samples():
    x = torch.randn(90, 16, generator=torch.Generator().manual_seed(7))
    return torch.utils.data.TensorDataset(x, (x[:, :4].sum(1) > 0).long())

class Digits(L.LightningModule):
    def __init__(self, width=24, dropout=0.2, lr=1e-2, workers=0, shuffle=True):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(16, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 2)
        )
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=2)
        self.validation_accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=2)
        self.losses = []
    def forward(self, x):
        return self.net(x)
    def training_step(self, batch, batch_idx):
        stand()
        x, y = batch
        output = self(x)
        loss = nn.functional.cross_entropy(output, y)
        self.accuracy(output, y)
        self.losses.append(loss.detach())
        window.append(batch_idx)
        self.log("window", float(sum(window)))
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        self.log("train_accuracy", self.accuracy, on_step=False, on_epoch=True)
        return loss
    def on_train_epoch_end(self):
        self.log("collected", torch.stack(self.losses).mean())
        self.losses.clear()
    def validation_step(self, batch, batch_idx):
        x, y = batch
        output = self(x)
        self.validation_accuracy(output, y)
        self.log("val_loss", nn.functional.cross_entropy(output, y), prog_bar=True)
        self.log("val_accuracy", self.validation_accuracy)
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, self.trainer.estimated_stepping_batches)
        return {{"optimizer": optimizer, "lr_scheduler": {{"scheduler": schedule, "interval": "step"}}}}
    def train_dataloader(self):
        train = torch.utils.data.Subset(samples(), range(70))
        return torch.utils.data.DataLoader(
            train, batch_size=12, shuffle=self.hparams.shuffle, num_workers=self.hparams.workers
        )
    def val_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.Subset(samples(), range(70, 90)), batch_size=12)
"""
# Two optimizers by hand, BatchNorm, noise, a schedule of each, and a callback that keeps an average of its own.
GAN = f"""
import torch
import pytorch_lightning as pl
from torch import nn
{STAND}
bce = nn.functional.binary_cross_entropy_with_logits

class Data(pl.LightningDataModule):
    def __init__(self, batch_size=12, workers=0):
        super().__init__()
        self.save_hyperparameters()
    def setup(self, stage):
        x = torch.randn(70, 4, generator=torch.Generator().manual_seed(7))
        self.data = torch.utils.data.TensorDataset(x @ torch.tensor([[2.0, 0, 1, 0]] * 4))
    def train_dataloader(self):
        options = {{"shuffle": True, "num_workers": self.hparams.workers}}
        return torch.utils.data.DataLoader(self.data, self.hparams.batch_size, **options)
    def val_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.Subset(self.data, range(20)), self.hparams.batch_size)

class Average(pl.Callback):
    def __init__(self):
        self.kept, self.seen = {{}}, 0
        self.probes = [nn.Linear(1, 1)]
        self.adam = torch.optim.Adam(self.probes[0].parameters())
    def on_train_batch_end(self, trainer, module, *rest):
        self.seen += 1
        self.adam.zero_grad()
        self.probes[0](torch.ones(1)).square().sum().backward()
        self.adam.step()
        for name, each in module.gen.named_parameters():
            self.kept[name] = 0.9 * self.kept.get(name, torch.zeros_like(each)) + 0.1 * each.detach()
        module.log("average", sum(each.sum() for each in self.kept.values()))

class GAN(pl.LightningModule):
    def __init__(self, width=16, g_lr=1e-2, d_lr=2e-2):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.gen = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 4))
        self.disc = nn.Sequential(nn.Linear(4, width), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(width, 1))
    def training_step(self, batch):
        stand()
        (real,) = batch
        gen, disc = self.optimizers()
        self.toggle_optimizer(disc)
        scores, fakes = self.disc(real), self.disc(self.gen(torch.randn(len(real), 3)))
        first = bce(scores, torch.ones_like(scores))
        disc.zero_grad()
        self.manual_backward(first)
        second = bce(fakes, torch.zeros_like(fakes))
        self.manual_backward(second)
        disc.step()
        self.untoggle_optimizer(disc)
        self.toggle_optimizer(gen)
        scores = self.disc(self.gen(torch.randn(len(real), 3)))
        loss = bce(scores, torch.ones_like(scores))
        gen.zero_grad()
        self.manual_backward(loss)
        gen.step()
        self.untoggle_optimizer(gen)
        self.log_dict({{"g_loss": loss, "d_loss": first + second}})
        for each in self.lr_schedulers():
            each.step()
    def validation_step(self, batch, batch_idx):
        self.log("spread", (self.gen(torch.ones(len(batch[0]), 3)) - batch[0]).abs().mean())
    def configure_optimizers(self):
        gen = torch.optim.Adam(self.gen.parameters(), lr=self.hparams.g_lr)
        disc = torch.optim.AdamW(self.disc.parameters(), lr=self.hparams.d_lr)
        schedules = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in (gen, disc)]
        return [gen, disc], schedules

trainer = pl.Trainer(max_epochs=2, callbacks=[Average()], accelerator="auto", devices=1)
trainer.fit(GAN(width=16), Data())
"""
CELLS = {"digits": DIGITS, "gan": GAN}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Provide uninterrupted trainings by cell, backend, slots and loader workers."""
    made: dict[tuple[str, str, int], tuple[Trial, object]] = {}

    def of(cell: str, backend: str, slots: int):
        if (cell, backend, slots) not in made:
            folder = tmp_path_factory.mktemp("lightning") / "trial"
            trial = Trial(folder, source=CELLS[cell], backend=backend, slots=slots)
            ran = trial.run()
            assert ran.codes == [0] * slots, ran.logs()
            made[cell, backend, slots] = trial, ran
        return made[cell, backend, slots]

    return of


@pytest.mark.parametrize(
    ("cell", "slots", "backend"),
    [
        pytest.param("digits", 1, "torch", marks=pytest.mark.long),
        ("digits", 2, "horovod"),
        pytest.param("gan", 1, "torch", marks=pytest.mark.long),
        ("gan", 2, "torch"),
    ],
)
def test_a_killed_training_ends_with_the_same_bits(whole, trial, cell, slots, backend):
    """The kill comes in the second epoch; unlike the uninterrupted training, this one has loader workers."""
    expected, ran = whole(cell, backend, slots)
    killed = trial(source=CELLS[cell], slots=slots, backend=backend, every="2steps", params={"workers": 2})
    first = killed.start(hold=10).reaches(10)
    first.wait(lambda: "8-1" in first.committed())
    first.kill(slots - 1)
    assert first.codes[slots - 1] == -9
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0] * slots, second.logs()
    assert int(second.started.resumed_from.split("-")[0]) in (8, 10)
    assert killed.weights() == expected.weights()
    assert killed.newest().state == expected.newest().state
    assert killed.parts() == expected.parts()
    assert ("beside.callbacks.0.adam" in killed.newest().state) == (cell == "gan")
    for kind in ("training", "validation"):
        assert second.reports(kind)[12] == ran.reports(kind)[12]


PLAIN = DIGITS.replace("nn.BatchNorm1d(width), ", "").replace("dropout=0.2", "dropout=0.0")


def alone(path, epochs=2):
    """Train the cell with Lightning alone, but with the runner's initial weights."""
    before = dict(os.environ)
    import lightning

    spec = importlib.util.spec_from_file_location("alone", path)
    cell = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cell)
    reseed(mix(0, "init", "module"))
    module = cell.Digits(shuffle=False)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    lightning.Trainer(max_epochs=epochs, accelerator="cpu", enable_model_summary=False, **quiet).fit(module)
    os.environ.clear()  # it sets a variable that would make later tests start a forkserver of their own
    os.environ.update(before)
    return {name: tensor.numpy().tobytes() for name, tensor in module.state_dict().items()}


def test_one_slot_without_random_draws_equals_lightning_alone(trial):
    plain = trial(source=PLAIN, slots=1, params={"shuffle": False})
    ran = plain.run()
    assert ran.codes == [0], ran.logs()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert plain.weights() == alone(plain.folder / "code" / "definition.py")
    finally:
        torch.set_num_threads(threads)


def test_two_slots_train_and_count_what_one_does(tmp_path):
    """Compare gradients, means of an epoch and metrics, without dropout and BatchNorm, for uneven shares, too."""
    one, two = (Trial(tmp_path / str(slots), source=PLAIN, slots=slots, batch_size=11) for slots in (1, 2))
    first, second = one.run(), two.run()
    assert (first.codes, second.codes) == ([0], [0, 0]), first.logs() + second.logs()
    for name, tensor in one.model().items():
        torch.testing.assert_close(two.model()[name], tensor, rtol=1e-4, atol=1e-5)
    for step in (6, 12):
        expected, found = (each.reports("training")[step] for each in (first, second))
        del expected["collected"], found["collected"]  # a mean of means of shares, as a module computes it by itself
        assert found == pytest.approx(expected, rel=1e-4)
        assert second.reports("validation")[step] == pytest.approx(first.reports("validation")[step], rel=1e-4)
    grown = Trial(tmp_path / "grown", source=PLAIN, slots=1, batch_size=11, every="1steps")
    killed = grown.start(hold=9).reaches(8)
    killed.wait(lambda: "8-1" in killed.committed())
    killed.kill(0)
    grown.slots = 2  # within an epoch, of which the second rank has seen nothing
    resumed = grown.run(resume_from="8-1")
    assert resumed.codes == [0, 0], resumed.logs()
    for name, tensor in one.model().items():
        torch.testing.assert_close(grown.model()[name], tensor, rtol=1e-4, atol=1e-5)


def test_early_stopping_ends_a_training_as_completed(trial):
    stops = """
trainer = L.Trainer(max_epochs=9, callbacks=[L.pytorch.callbacks.EarlyStopping("val_loss", mode="max", patience=2)])
trainer.fit(Digits())
"""
    stopped = trial(source=DIGITS + stops, epochs=9)
    ran = stopped.run()
    assert ran.codes == [0, 0], ran.logs()
    epochs = stopped.newest().epoch
    assert epochs < 9
    assert f"EarlyStopping(val_loss) ended the training after epoch {epochs:.0f} of 9" in ran.notes()


LOADERS = "return {name: torch.utils.data.DataLoader(samples()) for name in 'ab'}"
OTHERS = "self.members = [nn.Linear(2, 2)]; optimizer = torch.optim.SGD([*self.parameters(), self.members[0].weight])"


@pytest.mark.parametrize(
    ("line", "instead", "says"),
    [
        ("train = torch.utils.data.Subset(samples(), range(70))", LOADERS, "train_dataloader() returned 2 loaders"),
        ("optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)", OTHERS, "(self.members)"),
    ],
)
def test_what_cannot_be_trained_on_slots_is_refused(trial, line, instead, says):
    assert line in DIGITS
    ran = trial(source=DIGITS.replace(line, instead), slots=1).run()
    assert ran.codes == [1], ran.logs()
    assert says in ran.failures()[0].message


class TestContract(FormContract):
    """Test that Lightning keeps what every form promises, on two slots."""

    source = DIGITS
    diverging = DIGITS.replace("        self.accuracy(output, y)\n", "        loss = loss * float('nan')\n", 1)
    epochs_to_diverge = 9
    slots = 2


# 7 samples in batches of 3, of which 2 and 3 slots have unequal shares and, at the end, none.
COUNTED = """
import torch
import torchmetrics
import lightning as L
from torch import nn

class Counted(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.mean = torchmetrics.MeanMetric()
    def training_step(self, batch, batch_idx):
        x = batch[0][:, 0]
        for name, reduce, value in [("mean", "mean", x.mean()), ("sum", "sum", x.sum()), ("largest", "max", x.max())]:
            self.log(name, value, on_step=True, on_epoch=True, reduce_fx=reduce)
            self.log(f"synced_{name}", value, on_step=True, on_epoch=True, reduce_fx=reduce, sync_dist=True)
        self.log("ones", torch.ones(()), on_step=True, on_epoch=True, sync_dist=True)
        self.log("count", float(len(x)), on_epoch=True, on_step=False, reduce_fx="sum")
        return self.net(batch[0]).square().mean()
    def validation_step(self, batch, batch_idx):
        x = batch[0][:, 0]
        self.mean(x)
        self.log("val_ones", 1.0)
        self.log("val_mean", x.mean())
        self.log("val_synced", x.mean(), sync_dist=True)
        self.log("val_sum", x.sum(), reduce_fx="sum")
        self.log("val_least", x.min(), reduce_fx="min")
        self.log("val_metric", self.mean)
    def on_train_epoch_end(self):
        self.log("rank", self.trainer.strategy.reduce(torch.tensor(self.global_rank), "mean").float())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)
    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.data(), batch_size=3)
    val_dataloader = train_dataloader
    def data(self):
        return torch.utils.data.TensorDataset(torch.arange(1.0, 8)[:, None])

L.Trainer(max_epochs=1, log_every_n_steps=1).fit(Counted())
"""


def logged(values, of):
    return {f"{way}{name}_{of}": value for name, value in values.items() for way in ("", "synced_")}


def test_every_logged_number_is_that_of_plain_lightning_where_slots_do_not_divide_the_samples(tmp_path):
    steps = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0]]
    of_steps = [{"mean": sum(each) / len(each), "sum": sum(each), "largest": max(each)} for each in steps]
    of_epoch = {"mean": 4.0, "sum": 28.0, "largest": 7.0}
    validation = {"VAL_ones": 1, "val_mean": 4, "val_synced": 4, "val_sum": 28, "val_least": 1, "val_metric": 4}
    chosen = {"metric": {"name": "VAL_ones", "mode": "min"}}  # names are compared without case
    for slots in (1, 2, 3):
        trial = Trial(tmp_path / str(slots), source=COUNTED, slots=slots, batch_size=3, epochs=1, options=chosen)
        ran = trial.run()
        assert ran.codes == [0] * slots, ran.logs()
        reports = ran.reports("training")
        for step, expected in enumerate(of_steps, 1):
            found = {name: value for name, value in reports[step].items() if name.endswith("_step")}
            assert found == logged(expected, "step") | {"ones_step": 1.0}
        epoch = {name: value for name, value in reports[3].items() if name not in {"loss", *found}}
        assert epoch == logged(of_epoch, "epoch") | {"ones_epoch": 1.0, "count": 7.0, "rank": (slots - 1) / 2}
        assert ran.reports("validation") == {3: validation}

"""Define the training that is killed and damaged: it uses every kind of state.

Convolutions, BatchNorm and dropout, AdamW, a cosine schedule, averaged weights, a gradient scaler, and samples that are
augmented with random numbers of python, numpy and torch in loader workers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.torture.frameworks import KERAS, TRAINER

SOURCE = """
import random
import time
import numpy as np
import torch
from torch import nn

class Augmented(torch.utils.data.Dataset):
    def __init__(self, samples):
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(samples, 1, 8, 8, generator=generator)
        self.y = (self.x[:, 0, :4].sum((1, 2)) > 0).long()
    def __len__(self): return len(self.x)
    def __getitem__(self, index):
        x = torch.roll(self.x[index], random.randrange(-1, 2), 2)
        x = x * float(np.random.uniform(0.9, 1.1)) + 0.05 * torch.randn(1, 8, 8)
        return x, self.y[index]

def train_data(samples=96): return Augmented(samples)
def validation_data(samples=96): return torch.utils.data.Subset(Augmented(samples), range(24))
def model(width=8, dropout=0.2):
    return nn.Sequential(
        nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Dropout(dropout), nn.Flatten(),
        nn.Linear(width * 36, 2),
    )
def optimizer(params, lr=3e-3): return torch.optim.AdamW(params, lr=lr)
def schedule(optimizer, steps): return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
def loss(output, target, pause=0.0):
    time.sleep(pause)
    return nn.functional.cross_entropy(output, target)
def metrics(output, target): return {"accuracy": (output.argmax(1) == target).float()}
"""
# The same as a loop of the user's own: the averaged weights, the scaler, a generator and a dict are its own, too.
LOOP = (
    SOURCE[: SOURCE.index("def train_data")]
    + """
def train(run, width=8, dropout=0.2, lr=3e-3, pause=0.0):
    net = nn.Sequential(
        nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Dropout(dropout), nn.Flatten(),
        nn.Linear(width * 36, 2),
    ).to(run.device)
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    opt = torch.optim.AdamW(net.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 48)
    scaler = torch.amp.GradScaler("cpu")
    noise, seen = np.random.default_rng(3), {"steps": 0, "losses": []}
    run.restore(model=net, average=average, optimizer=opt, schedule=schedule, scaler=scaler, noise=noise, seen=seen)
    samples = Augmented(96)
    for epoch in run.epochs():
        net.train()
        for x, y in run.loader(samples):
            time.sleep(pause)
            with torch.autocast("cpu", torch.float16):
                output = net(x + 0.01 * float(noise.standard_normal()) + 0.01 * torch.randn(()))
            loss = nn.functional.cross_entropy(output.float(), y)
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            schedule.step()
            average.update_parameters(net)
            seen["steps"] += 1
            seen["losses"].append(loss.item())
            run.report(loss=loss.item())
        average.eval()
        right = count = total = 0
        with torch.no_grad():
            for x, y in run.loader(torch.utils.data.Subset(samples, range(24)), validation=True):
                output = average(x)
                total += nn.functional.cross_entropy(output, y, reduction="sum").item()
                right += (output.argmax(1) == y).sum().item()
                count += len(y)
        run.report(loss=total / count, accuracy=right / count, validation=True)
    run.finish(model=net)
"""
)
# The same as a LightningModule: its metrics, its callbacks, what it collects and its generator are parts of it, too.
LIGHTNING = (
    SOURCE[: SOURCE.index("def train_data")]
    + """
import lightning as L
import torchmetrics

class Average(L.Callback):
    def __init__(self):
        self.net, self.seen = None, 0
    def setup(self, trainer, module, stage):
        average = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        self.net = torch.optim.swa_utils.AveragedModel(module.net, multi_avg_fn=average)
    def on_train_batch_end(self, trainer, module, *rest):
        self.seen += 1
        self.net.update_parameters(module.net)

class Net(L.LightningModule):
    def __init__(self, width=8, dropout=0.2, lr=3e-3, pause=0.0):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Dropout(dropout), nn.Flatten(),
            nn.Linear(width * 36, 2),
        )
        self.accuracy = torchmetrics.Accuracy(task="binary")
        self.noise, self.losses = torch.Generator().manual_seed(3), []
    def training_step(self, batch, batch_idx):
        x, y = batch
        time.sleep(self.hparams.pause)
        output = self.net(x + 0.01 * torch.randn((), generator=self.noise))
        loss = nn.functional.cross_entropy(output, y)
        self.losses.append(loss.detach())
        self.accuracy(output.argmax(1), y)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("train_accuracy", self.accuracy, on_step=False, on_epoch=True)
        return loss
    def on_train_epoch_end(self):
        self.log("collected", torch.stack(self.losses).mean())
    def validation_step(self, batch, batch_idx):
        x, y = batch
        output = self.net(x)
        self.log_dict({"val_loss": nn.functional.cross_entropy(output, y), "scale": output.abs().mean()})
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 48)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

trainer = L.Trainer(max_epochs=6, precision="bf16-mixed", gradient_clip_val=1.0, callbacks=[Average()])
samples = Augmented(96)
trainer.fit(
    Net(),
    torch.utils.data.DataLoader(samples, batch_size=12, shuffle=True, num_workers=2),
    torch.utils.data.DataLoader(torch.utils.data.Subset(samples, range(24)), batch_size=12),
)
"""
)
# Two models against each other, each with its optimizer, schedule and scaler, in training steps.
GAN = (
    SOURCE[: SOURCE.index("def model(")]
    + """
bce = nn.functional.binary_cross_entropy_with_logits
def model(width=8, dropout=0.2):
    gen = nn.Sequential(
        nn.Linear(6, width * 16), nn.BatchNorm1d(width * 16), nn.ReLU(), nn.Unflatten(1, (width, 4, 4)),
        nn.ConvTranspose2d(width, 1, 4, 2, 1),
    )
    disc = nn.Sequential(
        nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.LeakyReLU(0.2), nn.Dropout(dropout), nn.Flatten(),
        nn.Linear(width * 36, 1),
    )
    return {"gen": gen, "disc": disc}
def optimizer(gen, disc, lr=3e-3):
    return {"gen": torch.optim.Adam(gen.parameters(), lr=lr), "disc": torch.optim.AdamW(disc.parameters(), lr=lr)}
def schedule(optimizer, steps):
    return {key: torch.optim.lr_scheduler.OneCycleLR(each, 0.01, steps) for key, each in optimizer.items()}
def step_disc(gen, disc, batch, pause=0.0):
    time.sleep(pause)
    real, _ = batch
    scores, fakes = disc(real), disc(gen(torch.randn(len(real), 6)).detach())
    loss = bce(scores, torch.ones_like(scores)) + bce(fakes, torch.zeros_like(fakes))
    return {"loss": loss, "right": (scores > 0).float()}
def step_gen(gen, disc, batch):
    fakes = disc(gen(torch.randn(len(batch[0]), 6)))
    return bce(fakes, torch.ones_like(fakes))
"""
)
EVERY = 4  # steps between checkpoints
STEPS = 48

# 96 samples in batches of 12 are 8 steps an epoch.
OPTIONS: dict[str, Any] = {
    "epochs": 6,
    "batch_size": 12,
    "ema": 0.9,
    "amp": "fp16",
    "clip": 1.0,
    "loader_workers": 2,
    "checkpoint_every": {"steps": EVERY},
    "max_restarts": 1000,
    "pause": 0.02,
}
# What its code does itself is no option of a loop.
OPTIONS_OF_LOOP = {name: value for name, value in OPTIONS.items() if name not in ("ema", "amp", "clip")}
OPTIONS_OF_TRAINER = ("epochs", "checkpoint_every", "max_restarts")


class Training(NamedTuple):
    """Definition, and the options with which it is trained."""

    source: str
    options: dict[str, Any]


FORMS = {
    "functions": Training(SOURCE, OPTIONS),
    "fsdp2": Training(SOURCE, OPTIONS | {"amp": "bf16", "strategy": "fsdp2"}),
    "gan": Training(GAN, OPTIONS | {"metric": {"name": "gen_loss"}}),
    "loop": Training(LOOP, OPTIONS_OF_LOOP),
    "keras": Training(KERAS, OPTIONS_OF_LOOP | {"loader_workers": None}),
    # The batches are those of its DataLoader or Trainer: `batch_size` is left as it is.
    "lightning": Training(LIGHTNING, OPTIONS_OF_LOOP | {"clip": 1.0, "amp": "bf16", "batch_size": 32}),
    "trainer": Training(TRAINER, {name: OPTIONS[name] for name in OPTIONS_OF_TRAINER} | {"batch_size": 32}),
}

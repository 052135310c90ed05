"""The training that everything is broken under: whatever has a state of its own is in it.

Convolutions, BatchNorm and dropout, AdamW, a cosine schedule, averaged weights, a gradient scaler, and samples that
are augmented with random numbers of python, numpy and torch in loader workers.
"""

from __future__ import annotations

from typing import Any

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

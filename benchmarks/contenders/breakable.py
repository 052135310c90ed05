"""Define a training whose state has all the parts that a resume can lose, and which logs the samples it trains on.

It has convolutions, BatchNorm and dropout, AdamW, a cosine schedule, averaged weights, fp16 with a gradient scaler, and
samples that are augmented with random numbers of python, numpy and torch in loader workers. A target is a label and the
number of its sample, which `loss` writes to `log`, with the epoch, before it does anything else.
"""

import os
import random
import time

import numpy as np
import torch
from torch import nn

EPOCHS, SAMPLES, BATCH_SIZE = 6, 96, 12
EVERY = 4  # steps between checkpoints
DECAY, CLIP = 0.9, 1.0
WORKERS = 2


class Augmented(torch.utils.data.Dataset):
    """Noise that is shifted, scaled and blurred at random each time a sample is read."""

    def __init__(self):
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(SAMPLES, 1, 8, 8, generator=generator)
        self.y = (self.x[:, 0, :4].sum((1, 2)) > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = torch.roll(self.x[index], random.randrange(-1, 2), 2)
        x = x * float(np.random.uniform(0.9, 1.1)) + 0.05 * torch.randn(1, 8, 8)
        return x, torch.stack([self.y[index], torch.tensor(index)])


def train_data():
    return Augmented()


def model(width=8, dropout=0.2):
    return nn.Sequential(
        nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Dropout(dropout), nn.Flatten(),
        nn.Linear(width * 36, 2),
    )  # fmt: skip


def optimizer(params, lr=3e-3):
    return torch.optim.AdamW(params, lr=lr)


def schedule(optimizer):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * SAMPLES // BATCH_SIZE)


def loss(output, target, epoch, log="", pause=0.03):
    with open(log, "a") as file:
        file.write(f"{os.getpid()} {epoch} {' '.join(map(str, target[:, 1].tolist()))}\n")
    time.sleep(pause)
    return nn.functional.cross_entropy(output, target[:, 0])

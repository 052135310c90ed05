"""Provide trainings that are slow for a known cause, written as users would write them."""

from __future__ import annotations

# What a step computes takes a few milliseconds, and its sleeps take far more: a busy machine changes no cause.
_MODEL = """
import os
import time
import torch
from torch import nn
def model(width=16):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))
def optimizer(params): return torch.optim.AdamW(params, lr=1e-3)
"""
_ROWS = """
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, index):
        time.sleep({seconds})
        return torch.full((8,), float(index)), torch.zeros(1)
def train_data(): return Rows()
"""
_LOSS = """
def loss(output, target):
    time.sleep({seconds})
    return nn.functional.mse_loss(output, target)
"""
SLOW_LOADER = _MODEL + _ROWS.format(seconds=0.02) + _LOSS.format(seconds=0.03)  # 160 ms for a batch of 8
SLOW_RANK = _MODEL + _ROWS.format(seconds=0) + _LOSS.format(seconds='0.25 if os.environ["RANK"] == "1" else 0.1')
SLOW_DISK = (
    _MODEL
    + _ROWS.format(seconds=0)
    + _LOSS.format(seconds=0.05)
    + """
_fsync = os.fsync
def slowly(descriptor):
    time.sleep(0.1)
    _fsync(descriptor)
os.fsync = slowly
"""
)

"""Train the shared model by hand, by Lightning and by Accelerate, each as its documentation shows first."""

from __future__ import annotations

import logging
import tempfile
import warnings
from typing import Any

import torch
from torch.utils.data import DataLoader

from contenders import work

FOR_EVER = 10**6
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def by_hand(step: Any, params: dict[str, Any], batch_size: int, workers: int) -> None:
    """Train by the loop of PyTorch's own tutorial."""
    data, net, optimizer = parts(params, batch_size, workers)
    for _ in range(FOR_EVER):
        for x, y in data:
            step()
            optimizer.zero_grad()
            work.loss(net(x.to(DEVICE)), y.to(DEVICE)).backward()
            optimizer.step()


def lightning(step: Any, params: dict[str, Any], batch_size: int, workers: int) -> None:
    """Train a LightningModule by a Trainer that neither logs, saves nor shows progress."""
    import lightning

    from contenders import lightning_module as cell

    _hush()
    vars(cell).update(step=step, params=params, batch_size=batch_size, workers=workers)
    trainer = lightning.Trainer(
        max_epochs=-1,
        accelerator=DEVICE.type,
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tempfile.mkdtemp(),
    )
    trainer.fit(cell.Shared())


def accelerate(step: Any, params: dict[str, Any], batch_size: int, workers: int) -> None:
    """Train by the loop of Accelerate's quick tour."""
    from accelerate import Accelerator

    _hush()
    accelerator = Accelerator(cpu=DEVICE.type == "cpu")
    data, net, optimizer = accelerator.prepare(*parts(params, batch_size, workers))
    for _ in range(FOR_EVER):
        for x, y in data:
            step()
            optimizer.zero_grad()
            accelerator.backward(work.loss(net(x), y))
            optimizer.step()


def parts(params: dict[str, Any], batch_size: int, workers: int) -> tuple[Any, Any, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    named = {name: value for name, value in params.items() if name != "width"}
    data = DataLoader(
        work.train_data(**named), batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    net = work.model(**{name: value for name, value in params.items() if name != "augmented"}).to(DEVICE)
    return data, net, work.optimizer(net.parameters())


def _hush() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")

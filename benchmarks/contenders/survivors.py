"""Train `breakable` with other libraries, and resume from the newest checkpoint as their documentation advises.

Each function trains to the end in this process and leaves the weights in `final.pt`. A checkpoint that cannot be read,
because the process died while it was written, is skipped for the one before.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

from contenders import breakable as work

PER_EPOCH = work.SAMPLES // work.BATCH_SIZE
LOADER: dict[str, Any] = {"batch_size": work.BATCH_SIZE, "shuffle": True, "num_workers": work.WORKERS}


def lightning(folder: Path, log: str) -> None:
    """Train by Lightning's Trainer with ModelCheckpoint and EMAWeightAveraging, resumed by `ckpt_path="last"`.

    After "Saving and loading checkpoints (basic)" and "Reproducibility" of Lightning's documentation.
    """
    import lightning as pl
    from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
    from lightning.pytorch.plugins import MixedPrecision

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = work.model()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, target = batch
            return _loss(self.net(x), target, self.current_epoch, log)

        def configure_optimizers(self) -> Any:
            optimizer = work.optimizer(self.parameters())
            return [optimizer], [{"scheduler": work.schedule(optimizer), "interval": "step"}]

        def on_train_start(self) -> None:
            _say_where(log, self.trainer.global_step)

    _quiet()
    pl.seed_everything(0, workers=True, verbose=False)
    saving = ModelCheckpoint(folder / "checkpoints", every_n_train_steps=work.EVERY, save_last=True)
    trainer = pl.Trainer(
        max_epochs=work.EPOCHS,
        accelerator="cpu",
        devices=1,
        deterministic=True,
        gradient_clip_val=work.CLIP,
        # The string "16-mixed" becomes bf16 without a scaler on a CPU; the plugin does as it is told.
        plugins=[MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))],
        callbacks=[saving, EMAWeightAveraging(decay=work.DECAY)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    module = Module()
    trainer.fit(module, DataLoader(work.train_data(), **LOADER), ckpt_path="last")
    _leave(module.net, folder)


def accelerate(folder: Path, log: str) -> None:
    """Train by a loop with Accelerate's save_state, load_state and skip_first_batches.

    After "Checkpointing" and the example `by_feature/checkpointing.py` of Accelerate's documentation, with the seedable
    sampler that it offers for reproducible runs.
    """
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration, set_seed

    _quiet()
    set_seed(0, deterministic=True)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    net, optimizer, schedule, average, scaler = _parts()
    net, optimizer, schedule, data = accelerator.prepare(
        net, optimizer, schedule, DataLoader(work.train_data(), **LOADER)
    )
    # On a CPU it knows no fp16, so the scaler is the loop's own and is registered with it.
    accelerator.register_for_checkpointing(average, scaler)
    step = 0
    for path in _newest(folder, "step_*"):
        with contextlib.suppress(Exception):
            accelerator.load_state(str(path))
            step = int(path.name.removeprefix("step_"))
            break
    _say_where(log, step)
    for epoch in range(step // PER_EPOCH, work.EPOCHS):
        data.set_epoch(epoch)
        skipped = step - epoch * PER_EPOCH
        for x, target in accelerator.skip_first_batches(data, skipped) if skipped else data:
            with torch.autocast("cpu", torch.float16):
                loss = _loss(net(x), target, epoch, log)
            accelerator.backward(scaler.scale(loss))
            _update(net, optimizer, schedule, average, scaler)
            step += 1
            if step % work.EVERY == 0:
                accelerator.save_state(str(folder / f"step_{step}"))
    _leave(accelerator.unwrap_model(net), folder)


def torchdata(folder: Path, log: str) -> None:
    """Train by a hand-written loop that also saves the state of torchdata's StatefulDataLoader.

    After "Stateful DataLoader Tutorial" of torchdata's documentation and "Reproducibility" of PyTorch's.
    """
    from torchdata.stateful_dataloader import StatefulDataLoader

    _quiet()
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    parts = net, optimizer, schedule, average, scaler = _parts()
    data = StatefulDataLoader(work.train_data(), worker_init_fn=_seed_worker, **LOADER)
    step = first = 0
    drawn: Any = None
    for path in _newest(folder, "step_*.pt"):
        with contextlib.suppress(Exception):
            saved = torch.load(path, weights_only=False)
            for part, state in zip((*parts, data), saved["parts"], strict=True):
                part.load_state_dict(state)
            drawn, step, first = saved["random"], saved["step"], saved["epoch"]
            break
    _say_where(log, step)
    for epoch in range(first, work.EPOCHS):
        batches = iter(data)
        if drawn is not None:  # only now: what makes an iterator draws from the main generators
            _set_random(drawn)
            drawn = None
        for x, target in batches:
            with torch.autocast("cpu", torch.float16):
                loss = _loss(net(x), target, epoch, log)
            scaler.scale(loss).backward()
            _update(net, optimizer, schedule, average, scaler)
            step += 1
            if step % work.EVERY == 0:
                states = [part.state_dict() for part in (*parts, data)]
                _write({"parts": states, "random": _random(), "step": step, "epoch": epoch}, folder / f"step_{step}.pt")
    _leave(net, folder)


def _parts() -> tuple[Any, Any, Any, Any, Any]:
    net = work.model()
    optimizer = work.optimizer(net.parameters())
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(work.DECAY))
    return net, optimizer, work.schedule(optimizer), average, torch.amp.GradScaler("cpu")


def _loss(output: torch.Tensor, target: torch.Tensor, epoch: int, log: str) -> torch.Tensor:
    loss: torch.Tensor = work.loss(output, target, epoch, log)
    return loss


def _update(net: nn.Module, optimizer: Any, schedule: Any, average: AveragedModel, scaler: Any) -> None:
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), work.CLIP)
    scaler.step(optimizer)
    scaler.update()
    schedule.step()
    optimizer.zero_grad()
    average.update_parameters(net)


def _newest(folder: Path, pattern: str) -> Iterator[Path]:
    """Return the checkpoints of a folder, the newest first."""
    yield from sorted(folder.glob(pattern), key=lambda path: int(path.stem.removeprefix("step_")), reverse=True)


def _write(state: Any, path: Path) -> None:
    torch.save(state, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").rename(path)


def _random() -> Any:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _set_random(states: Any) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


def _seed_worker(number: int) -> None:
    """Seed the generators of a loader worker, as PyTorch's notes on reproducibility advise."""
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def _say_where(log: str, step: int) -> None:
    with open(log, "a") as file:
        file.write(f"{os.getpid()} resumed {step}\n")


def _leave(net: nn.Module, folder: Path) -> None:
    _write(net.state_dict(), folder / "final.pt")


def _quiet() -> None:
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")

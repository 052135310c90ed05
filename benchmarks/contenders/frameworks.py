"""Train cells of Lightning, Keras and Hugging Face without end, by the framework alone or as a job of Daylight."""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from contenders import ours, peers, step_hook

LIGHTNING: tuple[dict[str, Any], int, int] = ({"net": "cnn", "width": 8}, 32, 0)  # parameters, batch size, workers
OPTIONS: dict[str, Any] = {"steps": ours.FOR_EVER, "epochs": ours.FOR_EVER, "checkpoint_every": ours.NEVER}


def lightning_alone(step: Callable[[], None]) -> None:
    _alone(step)
    peers.lightning(step, *LIGHTNING)


def lightning_in_a_job(step: Callable[[], None]) -> None:
    ours.train_lightning(step, *LIGHTNING)


def keras_alone(step: Callable[[], None], backend: str) -> None:
    _alone(step)
    os.environ |= {"KERAS_BACKEND": backend, "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    from contenders import keras_cell as cell

    cell.model().fit(*cell.train_data(), batch_size=32, epochs=ours.FOR_EVER, verbose=0, callbacks=cell.callbacks())


def keras_in_a_job(step: Callable[[], None], backend: str, batch_size: int = 32) -> None:
    step_hook.install(step)
    prepared = _prepared("keras_cell.py", "import tensorflow\n" * (backend == "tensorflow"), batch_size=batch_size)
    from kernel_backend.runner.forms.keras.training import KerasTraining

    with _silent():
        KerasTraining(prepared).train()


def trainer_alone(step: Callable[[], None]) -> None:
    _alone(step)
    importlib.import_module("contenders.trainer_cell")


def trainer_in_a_job(step: Callable[[], None]) -> None:
    step_hook.install(step)
    prepared = _prepared("trainer_cell.py")
    from kernel_backend.runner.forms.trainer.training import TrainerTraining

    with _silent():
        TrainerTraining(prepared).train()


def _alone(step: Callable[[], None]) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)  # a framework would wrap the model for one rank
    torch.set_num_threads(1)
    step_hook.install(step)


def _prepared(cell: str, above: str = "", **options: Any) -> Any:
    source = above + Path(__file__).with_name(cell).read_text()
    return ours.context(Path(tempfile.mkdtemp()), source, {}, **OPTIONS, **options)


def _silent() -> contextlib.AbstractContextManager[Any]:
    """Discard what the framework prints in each epoch."""
    return contextlib.redirect_stdout(open(os.devnull, "w"))

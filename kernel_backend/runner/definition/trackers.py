"""Silence experiment trackers on all ranks except rank 0, so that the ranks of a job create one tracker run."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kernel_backend.runner.on_import import OnImport

# Variables that make trackers send nothing; calls remain valid.
SILENT = {"WANDB_MODE": "disabled", "NEPTUNE_MODE": "debug"}
_WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")  # modules that define a FileWriter


def silence_trackers() -> None:
    """Silence Weights & Biases, Neptune and TensorBoard's writers in this process.

    Call it on all ranks but rank 0, before the user's code is imported.
    """
    os.environ.update(SILENT)
    OnImport(dict.fromkeys(_WRITERS, _replace_writer)).begin()


class _Nowhere:
    """Substitute for the FileWriter of TensorBoard's SummaryWriter that writes nothing."""

    def __init__(self, log_dir: str = "", *rest: Any, **options: Any) -> None:
        self._log_dir = str(log_dir)

    def get_logdir(self) -> str:
        """Return the log folder that the user passed."""
        return self._log_dir

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


def _nothing(*values: Any, **named: Any) -> None: ...


def _replace_writer(module: ModuleType) -> None:
    module.FileWriter = _Nowhere  # type: ignore[attr-defined]

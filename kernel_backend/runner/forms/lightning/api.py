"""Import Lightning's names from the package that the cell uses: `lightning` or `pytorch_lightning`.

The two packages have separate classes. Import this module only to train a cell that uses Lightning.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.fabric.plugins.environments.lightning import LightningEnvironment
    from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
    from lightning.pytorch.callbacks import Checkpoint
    from lightning.pytorch.loggers.logger import Logger
    from lightning.pytorch.loops.fit_loop import _FitLoop as FitLoop
    from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop as TrainingEpochLoop
    from lightning.pytorch.strategies import SingleDeviceStrategy
    from lightning.pytorch.trainer.connectors.logger_connector.result import (
        _Metadata as Metadata,
    )
    from lightning.pytorch.trainer.connectors.logger_connector.result import (
        _ResultCollection as ResultCollection,
    )
    from lightning.pytorch.trainer.connectors.logger_connector.result import (
        _ResultMetric as ResultMetric,
    )
    from lightning.pytorch.trainer.connectors.logger_connector.result import (
        _Sync as Sync,
    )
else:
    ROOT = "pytorch_lightning" if "pytorch_lightning" in sys.modules else "lightning.pytorch"

    def _of(module: str, name: str):
        return getattr(import_module(f"{ROOT}{module}"), name)

    Callback, Trainer = _of("", "Callback"), _of("", "Trainer")
    LightningModule, LightningDataModule = _of("", "LightningModule"), _of("", "LightningDataModule")
    Checkpoint = _of(".callbacks", "Checkpoint")
    Logger = _of(".loggers.logger", "Logger")
    FitLoop = _of(".loops.fit_loop", "_FitLoop")
    TrainingEpochLoop = _of(".loops.training_epoch_loop", "_TrainingEpochLoop")
    LightningEnvironment = _of(".plugins.environments", "LightningEnvironment")
    SingleDeviceStrategy = _of(".strategies", "SingleDeviceStrategy")
    _RESULT = ".trainer.connectors.logger_connector.result"
    Metadata, ResultCollection = _of(_RESULT, "_Metadata"), _of(_RESULT, "_ResultCollection")
    ResultMetric, Sync = _of(_RESULT, "_ResultMetric"), _of(_RESULT, "_Sync")

__all__ = [
    "Callback",
    "Checkpoint",
    "FitLoop",
    "LightningDataModule",
    "LightningEnvironment",
    "LightningModule",
    "Logger",
    "Metadata",
    "ResultCollection",
    "ResultMetric",
    "SingleDeviceStrategy",
    "Sync",
    "Trainer",
    "TrainingEpochLoop",
]

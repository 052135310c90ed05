"""Silence experiment trackers on all ranks but rank 0, so that a gang creates one run."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Variables that make trackers send nothing; their calls stay valid.
SILENT = {"WANDB_MODE": "disabled", "NEPTUNE_MODE": "debug"}
_WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")  # modules that have a FileWriter


def silence_trackers() -> None:
    """Silence Weights & Biases, Neptune and TensorBoard's writers in this process.

    Call it on all ranks but rank 0, before the user's code is imported.
    """
    os.environ.update(SILENT)
    for name in _WRITERS:
        if name in sys.modules:
            _replace_writer(sys.modules[name])
    sys.meta_path.insert(0, _Finder())


class _Nowhere:
    """Stand-in for the FileWriter of TensorBoard's SummaryWriter that writes nothing."""

    def __init__(self, log_dir: str = "", *rest: Any, **options: Any) -> None:
        self._log_dir = str(log_dir)

    def get_logdir(self) -> str:
        """Return the log folder that the user requested."""
        return self._log_dir

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


def _nothing(*values: Any, **named: Any) -> None: ...


class _Finder:
    """Import hook that replaces the file writers of TensorBoard modules when they are imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module in `_WRITERS` with the other finders, and patch its writer once the module has run."""
        if name not in _WRITERS:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                _replace_writer(module)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def _replace_writer(module: ModuleType) -> None:
    module.FileWriter = _Nowhere  # type: ignore[attr-defined]

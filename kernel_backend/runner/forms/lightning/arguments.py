"""Derive the arguments of the Lightning Trainer that a job creates from those of the Trainer in the user's cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from kernel_backend.definition.lightning.trainer import KEPT
from kernel_backend.model.experiment import Config

PRECISION: dict[str, Literal["bf16-mixed", "16-mixed"]] = {"bf16": "bf16-mixed", "fp16": "16-mixed"}  # by `--amp`
NEVER = 2**62  # steps between Lightning's own logs


def trainer_arguments(given: Mapping[str, Any], config: Config, automatic: bool) -> dict[str, Any]:
    """Return the keyword arguments of the job's Trainer; the caller adds the strategy, the callbacks and the plugins.

    `given` are the arguments of the cell's Trainer. A setting that is both an option of the job and one of these
    arguments is read from `config`, whose defaults are these arguments. `automatic` means that the module uses
    Lightning's automatic optimization.
    """
    found = {name: value for name, value in given.items() if name in KEPT}
    if given.get("gradient_clip_algorithm", "norm") == "norm":
        found["gradient_clip_val"] = config.clip
    if config.amp is not None:
        found["precision"] = PRECISION[config.amp]
    accumulated = int(given.get("accumulate_grad_batches") or 1)
    if config.steps is None:
        found["max_epochs"] = config.epochs
    else:
        found |= {"max_epochs": -1, "max_steps": config.steps // accumulated if automatic else -1}
    return found | {
        "devices": 1,
        "num_nodes": 1,
        "logger": False,
        "log_every_n_steps": NEVER,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,
    }

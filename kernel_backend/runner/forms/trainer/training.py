"""Train the Hugging Face Trainer of a cell in this rank, by calling its `train`."""

from __future__ import annotations

from typing import Any

import transformers
from transformers import PrinterCallback, ProgressCallback, Trainer, set_seed

from kernel_backend.definition.trainer.source import FOUND
from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.external_loop.leave import FINISHED, Leave
from kernel_backend.runner.forms.trainer.hooks import in_job
from kernel_backend.runner.forms.trainer.loop import TrainerLoop

_OVERRIDDEN = ("_init_training_state", "_run_epoch", "_maybe_log_save_evaluate", "get_batch_samples")


class TrainerTraining:
    """Training in this rank that consists of one call of a Trainer's `train()`."""

    def __init__(self, rank: RankContext) -> None:
        """Find the Trainer in the cell; raise InvalidDefinition if transformers is too old to be extended."""
        if not all(hasattr(Trainer, name) for name in _OVERRIDDEN):
            raise InvalidDefinition(
                f"a job trains a Trainer of transformers 5.23 or newer, and {transformers.__version__} is installed"
            )
        self._rank = rank
        self._trainer: Any = vars(rank.loaded.module)[FOUND]
        args, config = self._trainer.args, rank.config
        args.seed, args.ignore_data_skip, args.load_best_model_at_end = config.seed, False, False
        args.num_train_epochs, args.max_steps = config.epochs, config.steps or -1
        self._trainer.remove_callback(ProgressCallback)
        if rank.ranks.rank == 0 and not self._trainer.pop_callback(PrinterCallback):
            self._trainer.add_callback(PrinterCallback)
        self._loop = TrainerLoop(rank, self._trainer)
        in_job(self._trainer, self._loop)

    @property
    def step(self) -> int:
        """Return the number of steps taken."""
        return self._loop.training.position.step

    def train(self) -> int:
        """Call `train`, commit a final checkpoint, and return the exit code."""
        # Set only now: the loaders skip trained batches themselves, so that these are not read again.
        transformers.trainer.skip_first_batches = lambda loader, count: loader  # type: ignore[attr-defined]
        set_seed(self._rank.config.seed)
        try:
            self._trainer.train()
            self._loop.finish()
        except Leave as leave:
            return leave.code
        return FINISHED

    def close(self) -> None:
        """Wait for a checkpoint that is being written, and stop loader processes."""
        self._loop.close()

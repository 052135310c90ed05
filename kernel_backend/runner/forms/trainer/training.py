"""Run the method `train` of a Hugging Face Trainer in this rank of a job.

The Trainer was created by the user's cell, or by the user's function `train(run)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import transformers
from torch import nn
from transformers import PrinterCallback, ProgressCallback, Trainer, set_seed

from kernel_backend.definition.trainer.definition import REFUSED
from kernel_backend.definition.trainer.source import FOUND
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.launch.exit_codes import FINISHED
from kernel_backend.runner.cell_values import save_trained
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.determinism.rank_variables import hidden_rank_variables
from kernel_backend.runner.external_loop.leave import Leave
from kernel_backend.runner.external_loop.training import ExternalTraining
from kernel_backend.runner.forms.trainer.hooks import in_job
from kernel_backend.runner.forms.trainer.loop import TrainerLoop
from kernel_backend.runner.forms.trainer.state import TrainedHuggingFace

_OVERRIDDEN = ("_init_training_state", "_run_epoch", "_maybe_log_save_evaluate", "get_batch_samples")


class TrainerTraining:
    """Training in this rank by one call of a Trainer's `train()`."""

    def __init__(self, rank: RankContext) -> None:
        """Find the Trainer in the cell; raise InvalidDefinition if transformers is too old to be extended."""
        self._training = ExternalTraining(rank, "trainer")
        self._trainer: Any = vars(rank.loaded.module)[FOUND]
        self._loop = _attached(self._trainer, self._training, self._training.register)

    @property
    def step(self) -> int:
        """Return the number of steps taken."""
        return self._training.position.step

    def train(self) -> int:
        """Call the Trainer's `train`, commit a final checkpoint, and return the exit code of the rank."""
        try:
            with _begun(self._trainer):
                self._trainer.train()
            model, state = self._trainer.model, self._trainer.state
            trained = (model, *self._trainer.callback_handler.callbacks)
            save_trained(self._training.rank, trained, self._trainer, TrainedHuggingFace(model, state))
            self._training.finish()
        except Leave as leave:
            return leave.code
        return FINISHED

    def models(self, best: bool) -> nn.Module:
        """Return the Trainer's model; `best` is ignored."""
        model: nn.Module = self._trainer.model
        return model

    def close(self) -> None:
        """Wait for a checkpoint that is being written, and stop loader processes."""
        self._training.close()
        self._loop.close()


@contextmanager
def trained_within(training: ExternalTraining, register: Callable[[str, Any], object]) -> Iterator[None]:
    """Replace `Trainer.train` in the `with` block, so that the Trainer that calls it trains as a rank of the job.

    `training` is this rank's training, which the Trainer then reports to. Raises InvalidDefinition if a second Trainer
    is to train.

    `register` makes a value part of the checkpoints, under a name. The environment variables that give this process its
    rank are hidden until `train` is called, as Trainers that find them connect to the other ranks themselves.
    """
    original, loops = Trainer.train, list[TrainerLoop]()
    hidden = ExitStack()

    def train(trainer: Any, *_: Any, **arguments: Any) -> Any:
        if loops:
            raise InvalidDefinition("train(run) trains a second Trainer, and a job trains one: submit a job for each")
        hidden.close()
        loops.append(_attached(trainer, training, register))
        ignored = arguments.get("ignore_keys_for_eval")
        with _begun(trainer):
            return original(trainer, ignore_keys_for_eval=ignored)

    Trainer.train = train  # type: ignore[method-assign, assignment]
    try:
        hidden.enter_context(hidden_rank_variables())
        yield
    finally:
        hidden.close()
        Trainer.train = original  # type: ignore[method-assign]
        for each in loops:
            each.close()


def _attached(trainer: Any, training: ExternalTraining, register: Callable[[str, Any], object]) -> TrainerLoop:
    """Adapt a Hugging Face Trainer to run as a rank of the job; return its TrainerLoop.

    The Trainer gets the seed and the number of epochs or steps of the job, and its methods are overridden. Raises
    InvalidDefinition if transformers is too old for that, or if TrainingArguments has a setting that a job does not
    support.
    """
    if not all(hasattr(Trainer, name) for name in _OVERRIDDEN):
        raise InvalidDefinition(
            f"a job trains a Trainer of transformers 5.23 or newer, and {transformers.__version__} is installed"
        )
    args, config = trainer.args, training.rank.config
    for name, instead in REFUSED.items():
        if getattr(args, name, None):
            raise InvalidDefinition(f"{name} of TrainingArguments is not possible in a job: {instead}. Take it out")
    args.seed, args.ignore_data_skip, args.load_best_model_at_end = config.seed, False, False
    args.num_train_epochs, args.max_steps = config.epochs, config.steps or -1
    trainer.remove_callback(ProgressCallback)
    if training.rank.ranks.rank == 0 and not trainer.pop_callback(PrinterCallback):
        trainer.add_callback(PrinterCallback)
    slots, samples = training.rank.ranks.size, args.per_device_train_batch_size
    if slots > 1:
        fewer = f": per_device_train_batch_size={samples // slots} keeps the steps of one" if samples >= slots else ""
        each = f"each of {slots} slots has batches of {samples} samples, as with torchrun"
        training.rank.note(f"{each}, so that steps are larger and fewer{fewer}")
    loop = TrainerLoop(training, trainer, register)
    in_job(trainer, loop)
    return loop


@contextmanager
def _begun(trainer: Any) -> Iterator[None]:
    """Seed the random generators, and for the `with` block keep the Trainer from skipping trained batches.

    The Trainer's loader, which is Daylight's, already leaves out batches that earlier attempts have trained.
    """
    before = transformers.trainer.skip_first_batches  # type: ignore[attr-defined]
    # The loaders skip trained batches themselves, so that these are not read again.
    transformers.trainer.skip_first_batches = lambda loader, count: loader  # type: ignore[attr-defined]
    set_seed(trainer.args.seed)
    try:
        yield
    finally:
        transformers.trainer.skip_first_batches = before  # type: ignore[attr-defined]

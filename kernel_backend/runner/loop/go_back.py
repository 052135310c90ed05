"""Go back to a checkpoint before a loss that is not finite, and skip the steps that led to it (`--on-nan go_back`).

`--checkpoint-every` determines at which steps checkpoints are saved. The training goes back to the last such step
before the loss. If the checkpoint of that step is missing, an older one is restored and trained to that step, with
identical bits: the result does not depend on restarts. Skipped steps read their batches and advance the schedules, but
do not train.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_backend.errors import NotFinite
from kernel_backend.model.experiment import Cadence
from kernel_backend.model.reports import Note
from kernel_backend.runner.loop.finite import LossNotFinite
from kernel_backend.runner.loop.resume import take_position

if TYPE_CHECKING:
    from kernel_backend.runner.loop.training import Training

MOST = 3  # times in a training


def saved_before(step: int, every: Cadence, per_epoch: int | None) -> int:
    """Return the newest step before `step` at which `--checkpoint-every` saves a checkpoint; 0 if there is none.

    `every` is the value of that option; `per_epoch` is the number of steps in an epoch.

    Examples
    --------
    >>> saved_before(10, Cadence(steps=4), None), saved_before(8, Cadence(steps=4), None)
    (8, 4)
    >>> saved_before(10, Cadence(epochs=1), 6), saved_before(3, Cadence(epochs=1), 6)
    (6, 0)
    """
    length = every.steps or (every.epochs or 1) * (per_epoch or 1)
    return (step - 1) // length * length


def go_back(run: Training, broken: LossNotFinite) -> None:
    """Restore the last checkpoint before the non-finite loss `broken`, and mark the steps up to the loss as skipped.

    All ranks call it. Raises NotFinite if the training has gone back `MOST` times already, or has no checkpoint.
    """
    bad = run.step + 1
    times = len(run.left_out)
    if times >= MOST:
        raise NotFinite(f"{broken}. The training went back {MOST} times before: {_ADVICE}")
    to = safe_step(run, bad)
    manifest = run.checkpoints.restore_upto(to)
    if manifest is None:
        raise NotFinite(f"{broken}. There is no checkpoint before it to go back to: {_ADVICE}")
    left_out = [*run.left_out, range(to + 1, bad + 1)]
    take_position(run, manifest)
    run.left_out = left_out
    steps = f"steps {to + 1} to {bad} are" if bad > to + 1 else f"step {bad} is"
    text = f"{broken}. The training goes back to step {to}, and {steps} left out ({times + 1} of {MOST} times)"
    run.spool.say(Note(level="warning", text=text))


def safe_step(run: Training, step: int) -> int:
    """Return the step to which the training goes back if the loss of step `step` is not finite."""
    assert run.config.checkpoint_every is not None
    return saved_before(step, run.config.checkpoint_every, run.train.per_epoch)


def is_left_out(run: Training, step: int) -> bool:
    """Return True if `step` (counted from 1) is skipped: its batch is read, but the model is not trained on it."""
    return any(step in each for each in run.left_out)


_ADVICE = "a lower learning rate, --clip 1.0 or a warm-up may help"

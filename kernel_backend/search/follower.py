"""Search method of evaluations of checkpoints: a trial for each checkpoint of a training, in the order they come in."""

from __future__ import annotations

from kernel_backend.definition.prediction_form import CHECKPOINT
from kernel_backend.errors import Conflict
from kernel_backend.model.record import Value
from kernel_backend.model.search.records import Complete, Create, Reason, Resume, Settings
from kernel_backend.model.search.space import Space
from kernel_backend.model.trial import MODEL, Beginning, parse_beginning

HOPELESS = 3  # trials that fail one after another, after which no more are created


class Follower:
    """Searcher whose trials measure checkpoints, each once; it ends when the training does and all are measured."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}  # checkpoints without a trial, in their order
        self._known = set[str]()
        self._trials = 0
        self._active = set[int]()
        self._interrupted: list[int] = []  # trials that were paused when the search was closed
        self._in_vain = 0
        self._ended = self._closed = False

    def on_checkpoint(self, checkpoint: str | None) -> None:
        """Take a new checkpoint, as 12.3/500-2; None: there will be no more."""
        if checkpoint is None:
            self._ended = True
        elif checkpoint not in self._known:
            self._known.add(checkpoint)
            self._waiting[checkpoint] = None

    def knows(self, checkpoint: str) -> bool:
        """Return whether a checkpoint was taken."""
        return checkpoint in self._known

    @property
    def ended(self) -> bool:
        """Return whether there will be no more checkpoints."""
        return self._ended

    def wants(self) -> int:
        """Return how many checkpoints wait to be measured."""
        if self._closed or self._in_vain >= HOPELESS:
            return 0
        return len(self._waiting) + len(self._interrupted)

    def on_slot(self) -> Create | Resume | None:
        """Return the trial that gets a granted gang: that of the oldest checkpoint."""
        if not self.wants():
            return None
        decision: Create | Resume
        if self._interrupted:
            decision = Resume(trial=self._interrupted[0], until=1)
        else:
            named = parse_beginning(next(iter(self._waiting)))
            decision = Create(
                trial=self._trials + 1,
                params={CHECKPOINT: f"{named.trial}@{named.checkpoint.partition('-')[0]}"},
                until=1,
                begins_from=str(Beginning(named.trial, named.checkpoint, MODEL)),
            )
        self.granted(decision)
        return decision

    def granted(self, decision: Create | Resume) -> None:
        """Apply a decision of `on_slot`."""
        self._active.add(decision.trial)
        if isinstance(decision, Resume):
            self._interrupted.remove(decision.trial)
            return
        self._trials = max(self._trials, decision.trial)
        named = parse_beginning(decision.begins_from or "")
        self._waiting.pop(f"{named.trial}/{named.checkpoint}", None)

    def on_report(self, trial: int, unit: int, value: float) -> Complete:
        """Complete a trial, which has measured its checkpoint."""
        self._active.discard(trial)
        self._in_vain = 0
        return Complete()

    def on_exit(self, trial: int, reason: Reason) -> None:
        """Count a trial that has failed: the next checkpoint may fail in the same way."""
        self._active.discard(trial)
        self._in_vain += reason in ("failed", "invalid")

    def told(self, trial: int, params: dict[str, Value]) -> None:
        """Do nothing: a trial measures what it was created for."""

    def promote(self, trial: int) -> None:
        """Raise Conflict: no trial is paused by this search."""
        raise Conflict("an evaluation of checkpoints measures each of them: there is nothing to promote")

    def extend(self, trials: int | None) -> None:
        """Measure on after the search was closed, or after evaluations have failed."""
        self._closed, self._in_vain = False, 0

    def close(self) -> None:
        """Start no more trials; those that are measuring are paused, and resume first."""
        self._closed = True
        self._interrupted += sorted(self._active)
        self._active.clear()

    def over(self) -> bool:
        """Return whether the training has ended, and nothing is left to measure."""
        hopeless = self._in_vain >= HOPELESS
        return not self._active and not self.wants() and (self._ended or self._closed or hopeless)


def follower(settings: Settings, space: Space) -> Follower:
    """Return the searcher of the method `checkpoints`, with no checkpoint yet."""
    return Follower()

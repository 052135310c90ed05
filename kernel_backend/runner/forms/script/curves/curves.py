"""Report the values that a program computes in training: losses at `backward`, printed and logged numbers, variables.

Values of a step are reported with that step. Values outside the innermost training loop, or with a name such as
`val_loss`, are reported as a validation, which a search and the choice of the best checkpoint use.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, Protocol

from kernel_backend.definition.reported.bound import Bound, bound_in
from kernel_backend.definition.reported.labels import LONGEST_LINE, labelled
from kernel_backend.definition.reported.tracebacks import Tracebacks
from kernel_backend.definition.reported.vocabulary import is_held_out, is_training
from kernel_backend.definition.script.loops import TrainingLoop, within_training
from kernel_backend.model.experiment import Config
from kernel_backend.model.reports import Kind
from kernel_backend.model.values import cleaned
from kernel_backend.runner.external_loop.training import LoopPosition
from kernel_backend.runner.forms.script.curves.bound import count_in, number_of, value_in
from kernel_backend.runner.forms.script.curves.losses import Loss, losses_of
from kernel_backend.runner.forms.script.curves.trackers import Trackers
from kernel_backend.runner.forms.script.events import Events

_LOSS = re.compile(r"(?:^|[^a-z])loss(?:[^a-z]|$)", re.IGNORECASE)
_MOST_TEXTS = 200  # printed texts that are read in a step as they are printed
_NEWEST = 50  # of those after them, how many are read when the iteration ends


class ReportingTraining(Protocol):
    """Interface of a training to which values are reported, and which knows the current step."""

    position: LoopPosition

    def report(self, kind: Kind, values: Mapping[str, Any], step: int | None = None) -> None:
        """Report `values`, by name, for `step`, by default the current one; `kind` is "training" or "validation"."""


class Curves:
    """Reporter of the numbers that a program computes, prints and logs while it trains, as curves."""

    def __init__(
        self,
        training: ReportingTraining,
        config: Config,
        trees: Mapping[str, ast.Module],
        events: Events,
        active: Callable[[], Sequence[TrainingLoop]],
        length: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Subscribe to the program's events. `trees` has the syntax trees of its modules by name ("": main module).

        `active` returns the training loops that are running, outermost first. `length` returns the number of iterations
        per epoch of the innermost one, None if it is unknown.
        """
        self._training, self._config, self._trees = training, config, trees
        self._events, self._active, self._expected = events, active, length
        events.on_backward.append(self.backward)
        events.on_iteration.append(self.iteration)
        events.on_output.append(self.output)
        self._losses = losses_of(trees)
        self._outer: set[TrainingLoop] = set()  # loops that contain other training loops
        self._heard = {each.name for each in self._losses.values()} or {"loss"}
        self._bound: dict[TrainingLoop, tuple[Bound, ...]] = {}
        self._counts: dict[Bound, int] = {}
        self._own: set[str] = set()  # variables that are reported as curves
        self._taken = self._length = 0  # iterations of inner loops in this epoch, and in the last one
        self._first = True  # no step was taken yet
        self._metric = cleaned(config.metric.name)
        self._line, self._tracebacks = "", Tracebacks()
        self._texts, self._waiting = 0, deque[str](maxlen=_NEWEST)  # texts read since the last iteration; others
        self._named = 0  # the step in which values were printed or logged last
        self._step: dict[str, float] = {}
        self._epoch: dict[str, float] = {}
        self._last: dict[str, float] = {}  # values of all validations, the newest of each name
        self._validated: tuple[int, dict[str, float]] = -1, {}  # step and values of the newest validation
        self._trackers = Trackers(self.named, events.watchers.call)

    def close(self) -> None:
        """Stop listening to experiment trackers such as TensorBoard."""
        self._trackers.close()

    # Events of the program

    def backward(self, loss: Any) -> None:
        """Report the loss of which the program is about to compute the gradients."""
        self._look()
        first, self._first = self._first, False
        if length := self._length or self._expected():
            if first:  # a restart goes on within an epoch
                self._taken = round(self._training.position.fraction * length)
            done = min((self._taken + 1) / length, 1.0)
            self._training.position.fraction = max(self._training.position.fraction, done)  # of several inner loops
        known, unscaled = self._loss()
        loss = loss if unscaled is None else unscaled
        if hasattr(loss, "numel") and loss.numel() == 1:
            values = {known.name: loss.detach()}
            self._training.report("training", values, step=self._training.position.step + 1)

    def output(self, text: str) -> None:
        """Collect the named numbers in printed text.

        The start of an unfinished line is kept until its end is printed; progress bars end lines by a carriage return.
        Of very many texts in one step, only the first and the newest are read.
        """
        end = max(text.rfind("\n"), text.rfind("\r")) + 1
        if not end:
            self._line = (self._line + text)[: LONGEST_LINE + 1]  # longer lines are not read
            return
        whole, self._line = self._tracebacks.without(self._line + text[:end]), text[end : end + LONGEST_LINE + 1]
        if not self._begun or self._events.muted:
            return
        self._texts += 1
        if self._texts > _MOST_TEXTS:
            self._waiting.append(whole[-LONGEST_LINE:])
        else:
            self.named(labelled(whole))

    def _read_waiting(self) -> None:
        """Read the newest of the texts that were too many to be read as they were printed."""
        while self._waiting:
            self.named(labelled(self._waiting.popleft()))
        self._texts = 0

    def named(self, values: Mapping[str, Any]) -> None:
        """Collect named values that the program prints or logs; those that are not numbers are ignored."""
        if self._events.muted:
            return
        self._look()
        found = {self._name(name): value for name, each in values.items() if (value := _value(each)) is not None}
        if not found or not self._begun:
            return
        # The step of a running iteration is counted when the iteration ends.
        self._named = self._training.position.step + (self._events.backwards > 0)
        validates = any(map(is_held_out, found))
        within = bool(self._active()) and self._active()[-1] not in self._outer
        (self._step if within and not validates else self._epoch).update(found)

    def iteration(self, loop: TrainingLoop, frame: FrameType) -> None:
        """Report the values that an iteration of a training loop has computed; called when the iteration ends.

        `frame` is the stack frame in which the loop runs.
        """
        self._look()
        self._read_waiting()
        # A loss is reported exactly at `backward`; printed values of it are rounded.
        values, self._step = {name: each for name, each in self._step.items() if name not in self._heard}, {}
        if values:
            self._report_training(values)
        if loop in self._outer:
            self._take_bound(loop, frame)
        self._taken += 1
        if within_training(self._active()) == [loop]:
            self._training.position.fraction = 1.0  # of the epoch that ends here
            # A restart at the end of an epoch has seen no step of it.
            self._length, self._taken = 0 if self._first else self._taken - (loop in self._outer), 0
        self.finish() if loop.rounds else self._validate()

    def begin_training(self) -> None:
        """Report what an earlier training or cell has printed or logged, and keep nothing of it for the next one."""
        self.finish()
        self._last, self._validated = {}, (-1, {})
        self._taken = self._length = 0

    def finish(self) -> None:
        """Report, as a validation, what the program has computed, printed or logged after a training's last iteration.

        Names that have no new value get their value of the last validation.
        """
        self._read_waiting()
        if self._epoch:
            step, values = self._validated
            known = values if step == self._training.position.step else {}  # of this step, the first values count
            self._epoch = {**self._last, **self._epoch, **known}
            self._validate()

    def _name(self, name: Any) -> str:
        """Return the name of a curve for a printed or logged name; names are compared as they are read from texts."""
        name = str(name).strip().replace(" ", "_")
        return self._config.metric.name if cleaned(name) == self._metric else name

    # Levels

    def _look(self) -> None:
        self._outer.update(self._active()[:-1])

    @property
    def _begun(self) -> bool:
        return bool(self._active()) or self._training.position.step > 0

    def _take_bound(self, loop: TrainingLoop, frame: FrameType) -> None:
        """Collect numbers that an iteration has assigned to variables or appended to lists.

        Numbers that it has also printed or logged are left out, as they have been collected already.
        """
        if loop not in self._bound:
            tree = self._trees.get(loop.module)
            self._bound[loop] = () if tree is None else bound_in(tree, loop.line)
        names = frame.f_locals
        told = list(self._epoch.values())
        for each in self._bound[loop]:
            value, count = value_in(each, names), count_in(each, names)
            fresh = not each.appended or count > self._counts.get(each, 0)
            self._counts[each] = count
            if value is None or not fresh or self._name(each.name) in self._epoch:
                continue
            name = self._name(each.name)
            if each.name in self._own or name == self._config.metric.name or not _is_told(value, told):
                self._own.add(each.name)
                self._epoch[name] = value

    def _validate(self) -> None:
        """Report the values collected since the last validation, as a new validation.

        Reported as values of training instead are those whose names say so (`train_loss`), and all of them if the
        metric that the search compares, or that earlier validations had, is missing.
        """
        values, self._epoch = self._epoch, {}
        metric, searches = self._config.metric, self._config.search_needs_validations
        if metric.name == "loss" and "loss" not in values:
            losses = [name for name in values if _LOSS.search(name) and (searches or not is_training(name))]
            held = [name for name in losses if is_held_out(name)]
            for name in (held or losses)[:1]:
                values["loss"] = values[name]
        trained = {name: values.pop(name) for name in list(values) if is_training(name) and name != metric.name}
        if trained:
            self._report_training(trained)
        if not values:
            return
        if metric.name not in values and metric.name in self._last:
            self._report_training(values)  # it is named in some iterations only
            return
        if metric.name in values or not searches:
            self._last |= values
            self._validated = self._training.position.step, values
            self._training.report("validation", values)
        else:
            self._report_training(values)

    def _report_training(self, values: Mapping[str, float]) -> None:
        self._training.report("training", values, step=max(self._named, self._training.position.step))

    def _loss(self) -> tuple[Loss, Any]:
        """Return the loss on which the program is now calling `backward`, and its value before it was scaled, if any.

        That is what the program itself calls its loss: `(loss / 4).backward()` accumulates the gradients of four.
        """
        frame: FrameType | None = sys._getframe(2) if self._losses else None
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            found = self._losses.get(("" if module == "__main__" else module, frame.f_lineno))
            if found is not None:
                value = frame.f_locals.get(found.unscaled)
                return found, value if hasattr(value, "detach") else None
            frame = frame.f_back
        return Loss("loss"), None


def _value(value: Any) -> float | None:
    return float(value) if type(value) is int else number_of(value)


def _is_told(value: float, told: Sequence[float]) -> bool:
    """Return True if the program has printed `value`: a number in `told` equals it when rounded or as a percentage."""
    return any(abs(value * scale - each) <= 0.006 * max(abs(each), 0.1) for each in told for scale in (1, 100))

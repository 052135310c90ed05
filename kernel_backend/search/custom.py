"""Run a user's own search class from the notebook cell, which proposes trials and decides which continue.

    class MySearch:
        interval = 5                      # trials are judged each 5 units; without it they train to the end
        def __init__(self, space, settings): ...
        def ask(self, trial):             # -> the hyperparameters of trial number `trial`,
            ...                           # or the number of a paused trial that goes on, or None: nothing now
        def tell(self, trial, params, unit, value):
            ...                           # -> None: it goes on; "pause"; "stop"

The class runs in its own process (a `SearchProcess`), and this state machine is all that the service sees of it. After
a restart `tell` is called again with all reports, in order, but no earlier `ask` is repeated. Therefore the answer of
`ask` should depend only on the number of the trial and on earlier calls of `tell`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from kernel_backend.errors import SearchFailed
from kernel_backend.model.record import Value
from kernel_backend.model.search.records import Complete, Continue, Create, Pause, Prune, Resume, Settings, Verdict
from kernel_backend.model.search.space import Space
from kernel_backend.model.values import nearest
from kernel_backend.search.base_searcher import BaseSearcher, Progress
from kernel_backend.search.encoding import Encoder
from kernel_backend.search.observations import Observations

Wish = Literal["pause", "stop"]


class SearchProcess(Protocol):
    """Process that runs a user's search class; its methods call those of the class.

    They raise SearchFailed if the class raises an exception, takes too long, or returns an invalid value.
    """

    def interval(self) -> Any:
        """Return the class's attribute `interval`, the number of units after which a trial is judged; None if missing.

        The value is unchecked. A unit is an epoch or a step.
        """

    def ask(self, trial: int) -> Any:
        """Return what the class's `ask` returns for trial number `trial`, as a JSON value that is unchecked.

        Valid are a dictionary of hyperparameters, the number of a paused trial to resume, or None.
        """

    def tell(self, trial: int, params: dict[str, Value], unit: int, value: float) -> Any:
        """Pass the metric of a trial at the end of `unit` to the class's `tell`; return its result, unchecked.

        Valid are None (the trial continues), "pause" and "stop".
        """


@dataclass(kw_only=True)
class _Trial(Progress):
    requested_action: Wish | None = None  # answer of `tell` to apply at the next target


class Custom(BaseSearcher[_Trial]):
    """Searcher that calls a custom search class. After the class has failed (`failure`), it uses no more gangs."""

    failure: SearchFailed | None = None

    def __init__(self, settings: Settings, space: Space, search_process: SearchProcess) -> None:
        super().__init__(settings.units, Observations(Encoder(space), settings.mode, []), settings.trials)
        self._names, self._search_process, self._name = space.names, search_process, settings.source or "the search"
        self._interval: int | None = None
        self._nothing_now = False

    # Assigning free gangs

    def _wanted(self) -> int:
        """Return how many gangs the search could use: one per trial that resumes first, and those that `ask` may use.

        The latter are as many as new trials are allowed, but at least 1 if another trial is paused; none if the last
        call of the class's `ask` returned None.
        """
        if self.failure:
            return 0
        others = len(self._paused) > len(waiting := self._waiting())
        return len(waiting) + (0 if self._nothing_now else max(self._left(), int(others)))

    def _choose(self) -> Create | Resume | None:
        """Return the decision that the class's `ask` makes; None if it returns None or fails, which sets `failure`."""
        if not self._wanted():
            return None
        try:
            decision = self._answer()
        except SearchFailed as error:
            self.failure = error
            return None
        self._nothing_now = decision is None
        return decision

    def _answer(self) -> Create | Resume | None:
        for trial in self._waiting():
            return self._resume(trial)
        number = self._asked + 1
        answer = self._search_process.ask(number)
        if answer is None:
            return None
        if isinstance(answer, dict):
            if self._left() == 0:
                return None
            return Create(trial=number, params=self._checked(answer), until=self._after(0))
        if isinstance(answer, bool) or not isinstance(answer, int):
            raise SearchFailed(
                f"{self._name}.ask() answered {answer!r}: it answers with a dictionary of hyperparameters, the number "
                "of a paused trial, or None"
            )
        return self._resume(answer)

    def _resume(self, trial: int) -> Resume:
        if trial not in self._paused:
            there = ", ".join(map(str, sorted(self._paused))) or "none"
            raise SearchFailed(f"{self._name}.ask() answered {trial}, and trial {trial} is not paused ({there} are)")
        return Resume(trial=trial, until=self._target(self._trials[trial]))

    def _checked(self, params: dict[str, Any]) -> dict[str, Value]:
        """Return the hyperparameters if they are within the space; raises SearchFailed otherwise.

        If the space is empty, all names are accepted; the user's functions check them.
        """
        for name in params:
            if self._names and name not in self._names:
                raise SearchFailed(
                    f"{self._name}.ask() answered with {name}, which is no hyperparameter of this search"
                    f"{nearest(name, self._names)}; there are: {' '.join(self._names)}"
                )
        try:
            self._seen.encoder.encode(params)
        except ValueError as error:
            raise SearchFailed(f"{self._name}.ask() answered {params!r}: {error}") from None
        return params

    def _after(self, unit: int) -> int:
        """Return the unit at which the next interval ends after `unit`; it is a trial's next target."""
        if self._interval is None:
            self._interval = self._asked_interval()
        return min((unit // self._interval + 1) * self._interval, self._units)

    def _asked_interval(self) -> int:
        found = self._search_process.interval()
        if found is None:
            return self._units
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            raise SearchFailed(f"{self._name}.interval is {found!r}: it is a whole number of units, at least 1")
        return found

    def _target(self, known: _Trial) -> int:
        return self._after(known.reached)

    def _begun(self, decision: Create) -> _Trial:
        return _Trial(until=decision.until)

    # Reports of trials

    def on_report(self, trial: int, unit: int, value: float) -> Verdict:
        """Process a trial's report, and pass it to the class's `tell`; so are the results of an earlier search.

        The newest answer of `tell` about a trial is applied when the trial reaches its target.
        """
        if trial not in self._trials and trial in self._seen.params:
            self._tell(trial, unit, value)
        return super().on_report(trial, unit, value)

    def _record(self, trial: int, known: _Trial, unit: int, value: float) -> None:
        known.requested_action = self._tell(trial, unit, value) or known.requested_action

    def _tell(self, trial: int, unit: int, value: float) -> Wish | None:
        self._nothing_now = False
        if self.failure:
            return None
        try:
            return self._requested_action(self._search_process.tell(trial, dict(self._seen.params[trial]), unit, value))
        except SearchFailed as error:
            self.failure = error
            return None

    def _requested_action(self, answer: Any) -> Wish | None:
        if answer is None:
            return None
        if answer not in ("pause", "stop"):
            raise SearchFailed(f"{self._name}.tell() answered {answer!r}: it answers with 'pause', 'stop' or None")
        if self._after(0) == self._units > 1:
            raise SearchFailed(
                f"{self._name}.tell() answered {answer!r}, and its trials train to the end: write interval = 1 into "
                "the class to have them judged after each unit"
            )
        return "pause" if answer == "pause" else "stop"

    def _arrive(self, trial: int, known: _Trial) -> None:
        try:
            super()._arrive(trial, known)
        except SearchFailed as error:  # a class that was created again may lack an interval
            self.failure = error
            self._rest(trial)

    def _judge(self, trial: int, known: _Trial) -> Continue | Pause | Prune:
        if known.requested_action == "stop":
            return Prune()
        return Pause() if known.requested_action or self.failure else Continue(until=self._target(known))

    def judged(self, trial: int, verdict: Verdict) -> None:
        """Apply the logged decision about a report, without calling the class, which might now decide differently."""
        known = self._trials.get(trial)
        if known is None:
            return
        known.end = None
        if isinstance(verdict, Complete | Prune):
            self._end(trial, known, verdict)
        elif isinstance(verdict, Pause):
            self._rest(trial)
        else:
            self._paused.discard(trial)
            self._seen.train(trial)
            self._go_on(trial, known, verdict.until)

    def _go_on(self, trial: int, known: _Trial, until: int) -> None:
        super()._go_on(trial, known, until)
        known.requested_action = None

    def _end(self, trial: int, known: _Trial, end: Complete | Prune) -> None:
        super()._end(trial, known, end)
        self._nothing_now = False

    def _forget(self, trial: int, known: _Trial) -> None:
        """Do nothing: the class is not notified of invalid trials."""

    def _fail(self, trial: int, known: _Trial) -> None:
        self._tell(trial, known.until, math.nan)

    # Manual steering

    def extend(self, trials: int | None) -> None:
        """Set the total number of trials; if the class has failed, it is called again from now on."""
        super().extend(trials)
        self._nothing_now, self.failure = False, None

    def fail(self, message: str) -> None:
        """Mark the search as failed, during a replay of its log, with the error message from the log."""
        self.failure = self.failure or SearchFailed(message)

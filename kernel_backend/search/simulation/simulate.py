"""Simulate a search on learning curves, without training: discrete events on a simulated clock."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Literal, NamedTuple

import numpy as np

from kernel_backend.model.search.records import Continue, Create, Resume
from kernel_backend.search.base import Searcher
from kernel_backend.search.simulation.problems import Problem
from kernel_backend.search.simulation.trace import Mode, SimulatedTrial, State, Trace

_STATES: dict[str, State] = {"pause": "paused", "prune": "pruned", "complete": "completed"}


def simulate(
    searcher: Searcher,
    problem: Problem,
    workers: int,
    seed: int = 0,
    *,
    mode: Mode = "min",
    max_time: float = math.inf,
    goal: float | None = None,
    jitter: float = 0.0,
    failures: float = 0.0,
    resume_cost: float = 0.0,
    reports: Literal["units", "targets"] = "units",
) -> Trace:
    """Run a search against recorded learning curves, on a simulated clock.

    The run ends when the search is over, after `max_time`, or at a report that is as good as `goal`. The same
    arguments give the same trace.

    Parameters
    ----------
    searcher : Searcher
        Search at its beginning, as `make` returns it.
    problem : Problem
        Learning curves of the trials, and the seconds that a unit takes.
    workers : int
        Number of gangs, that is, of trials that can train at the same time.
    seed : int, default 0
        Seed of `jitter` and `failures`.
    mode : {"min", "max"}, default "min"
        Whether lower or higher values are better, for `goal` and the trace.
    max_time : float, default inf
        Seconds on the simulated clock.
    goal : float, optional
        Value at which the run ends.
    jitter : float, default 0.0
        Standard deviation of the logarithm of a trial's speed.
    failures : float, default 0.0
        Fraction of gangs, from 0 to 1, whose trial fails for good before its target.
    resume_cost : float, default 0.0
        Seconds that a new gang loads before it trains; they are not spent if a trial continues on its gang.
    reports : {"units", "targets"}, default "units"
        Whether trials report at the end of each unit, or at their targets only, which is faster for long trainings.

    Returns
    -------
    Trace
        Trials, reports and use of the workers.

    Examples
    --------
    >>> import numpy as np
    >>> from daylight.search import Settings, TableProblem, make, simulate
    >>> rates = np.logspace(-4, -1, 16)
    >>> losses = np.abs(np.log10(rates[:, None]) + 2.5) + 1 / np.arange(1, 10)
    >>> problem = TableProblem(["lr"], rates[:, None], losses)
    >>> searcher = make(Settings(method="asha", units=9, trials=16, eta=3, sampler="random"), problem.space)
    >>> trace = simulate(searcher, problem, workers=4)
    >>> len(trace.trials), round(trace.best_at(trace.ended), 2)
    (16, 0.21)
    """
    world = _Simulation(searcher, problem, workers, seed, mode, jitter, failures, resume_cost, reports == "units")
    world.fill()
    while world.due and world.due[0].time <= max_time:
        if world.step() and goal is not None and world.best_is(goal):
            break
        world.fill()
    else:
        world.pass_time(min(max_time, math.inf if world.due else world.now))
    return world.trace()


class _Due(NamedTuple):
    """Next event of a trial: the end of its next unit, or its target.

    The trial fails in unit `fails`; None: it does not fail.
    """

    time: float
    order: int
    trial: int
    unit: int
    until: int
    fails: int | None


class _Simulation:
    """State of a simulation: gangs, the trials that they train, and the simulated clock."""

    def __init__(
        self,
        searcher: Searcher,
        problem: Problem,
        workers: int,
        seed: int,
        mode: Mode,
        jitter: float,
        failures: float,
        resume_cost: float,
        each_unit: bool,
    ) -> None:
        self._searcher, self._problem, self._workers, self._mode = searcher, problem, workers, mode
        self._jitter, self._failures, self._resume_cost, self._each_unit = jitter, failures, resume_cost, each_unit
        self._random = np.random.default_rng(seed)
        self._order = itertools.count()
        self._trials: dict[int, SimulatedTrial] = {}
        self._speed: dict[int, float] = {}
        self._reports: list[tuple[float, float]] = []  # time, value
        self._idle = workers
        self._busy = 0.0
        self.now = 0.0
        self.due: list[_Due] = []

    def fill(self) -> None:
        """Assign idle gangs to trials, as long as the search can use any."""
        while self._idle and self._searcher.wants() > 0:
            decision = self._searcher.on_slot()
            if decision is None:
                return
            self._idle -= 1
            if isinstance(decision, Create):
                self._create(decision)
            self._train(decision, self._resume_cost)

    def _create(self, decision: Create) -> None:
        trial, parent = decision.trial, decision.parent
        params = self._problem.begin(trial, decision.params, parent)
        self._searcher.told(trial, params)
        reached = 0 if parent is None else self._trials[parent].reached
        self._trials[trial] = SimulatedTrial(trial, params, self.now, parent=parent, reached=reached)
        self._speed[trial] = math.exp(self._random.normal(0.0, self._jitter)) if self._jitter else 1.0

    def _train(self, towards: Create | Resume, cost: float) -> None:
        at = self._trials[towards.trial]
        at.state = "running"
        fails: int | None = None
        if self._failures and self._random.random() < self._failures:
            fails = int(self._random.integers(at.reached + 1, towards.until + 1))
        self._plan(at, towards.until, fails, cost)

    def _plan(self, at: SimulatedTrial, until: int, fails: int | None, cost: float = 0.0) -> None:
        unit = at.reached + 1 if self._each_unit else fails or until
        seconds = cost + self._problem.seconds(at.number) * self._speed[at.number] * (unit - at.reached)
        at.trained += seconds
        heapq.heappush(self.due, _Due(self.now + seconds, next(self._order), at.number, unit, until, fails))

    def step(self) -> bool:
        """Process the next event; return whether it was a report of a finite value."""
        due = heapq.heappop(self.due)
        self.pass_time(due.time)
        at = self._trials[due.trial]
        if due.fails == due.unit:
            at.state = "failed"
            self._idle += 1
            self._searcher.on_exit(due.trial, "failed")
            return False
        at.reached = due.unit
        value = at.values[at.reached] = self._problem.value(due.trial, at.reached)
        if math.isfinite(value):
            self._reports.append((self.now, value))
        verdict = self._searcher.on_report(due.trial, at.reached, value)
        if not isinstance(verdict, Continue):
            self._idle += 1
            at.state = _STATES[verdict.type]
        elif verdict.until == due.until:
            self._plan(at, due.until, due.fails)
        else:
            self._train(Resume(trial=due.trial, until=verdict.until), 0.0)
        return math.isfinite(value)

    def pass_time(self, until: float) -> None:
        """Advance the clock to `until`; gangs that train a trial count as busy meanwhile."""
        self._busy += (until - self.now) * (self._workers - self._idle)
        self.now = until

    def best_is(self, goal: float) -> bool:
        """Return whether the newest report is as good as `goal`."""
        value = self._reports[-1][1]
        return value <= goal if self._mode == "min" else value >= goal

    def trace(self) -> Trace:
        """Return the result of the simulation so far."""
        times, values = np.array(self._reports, dtype=float).reshape(-1, 2).T
        return Trace(self._mode, self._workers, self._trials, times, values, self._busy, self.now)

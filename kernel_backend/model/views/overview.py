"""Define the overview of an experiment: its record, trials and newest values, and why it waits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from pydantic import FiniteFloat, GetJsonSchemaHandler

from kernel_backend.model.experiment import Experiment, Metric
from kernel_backend.model.node_faults import Suspicion
from kernel_backend.model.record import Record
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.resources import LOCAL
from kernel_backend.model.states import (
    EXPERIMENT_ENDED,
    HOLDING_SLOTS,
    TRIAL_ENDED,
    AttemptState,
    ExperimentState,
    TrialState,
)
from kernel_backend.model.stream import Message
from kernel_backend.model.trial import Attempt, Failure, Trial
from kernel_backend.model.versions import read
from kernel_backend.model.views.best import best_of, best_values, better
from kernel_backend.model.views.shown_trials import MOST, TrialActivity, shown_trials

_T = TypeVar("_T")

ATTEMPTS = 10  # newest attempts per trial in an overview

DELETED = "deleted"  # displayed state of a deleted experiment, whatever its own state

# Displayed state of an active experiment that is no search: the first of these that its trial has.
LIVELIEST = [TrialState.RUNNING, TrialState.STARTING, TrialState.RELEASING, TrialState.STOPPING, TrialState.QUEUED]


class Wait(Record):
    """Reason why a slot request waits, its position in the queue (from 1), and the estimated wait in seconds if known.

    About half of all waits end between `earliest` and `latest`. `starts` is True if its slots are free, so that it ends
    within moments.
    """

    reason: str
    place: int
    starts: bool = False
    estimate: FiniteFloat | None = None
    earliest: FiniteFloat | None = None
    latest: FiniteFloat | None = None


class Overview(Record):
    """Overview of an experiment, as `show` and `list` return it."""

    experiment: Experiment
    trials: tuple[Trial, ...]  # by index; if there are very many, only those to display
    trial_counts: dict[TrialState, int] = {}  # number of trials per state, if `trials` are not all of them
    attempts: tuple[Attempt, ...] = ()  # of these trials, oldest first; at most the newest ten of each
    wait: Wait | None = None
    starting: str = ""  # what it does before its first report: `preparing 2 slots: importing torch (12 s)`
    warnings: tuple[str, ...] = ()  # of the snapshot, and notes of attempts
    informational: tuple[str, ...] = ()  # those of `warnings` that only inform, and ask nothing of the user
    default_trials: int | None = None  # number of trials of a search, if neither its options nor its method set it
    found_batch_size: int | None = None  # by `--batch-size auto`; None for a search, whose trials have their own
    artifacts_seq: int = 0  # number of the message about the newest artifact; 0: none
    seq: int = 0  # number of the newest message included: a client watches from here

    @property
    def state(self) -> str:
        """Return the state to display, such as running.

        A search runs from its submission to its end, and is queued only while it waits for slots and holds none. Any
        other active experiment has the state of its trial; one that may not start yet is queued. Only an experiment
        that was paused is shown so: `experiment.state` then says it.
        """
        if self.experiment.deleted_at is not None:
            return DELETED
        if self.experiment.state is not ExperimentState.ACTIVE:
            return str(self.experiment.state)
        state = next((state for state in LIVELIEST if self.counts.get(state)), TrialState.QUEUED)
        holds_slots = state in HOLDING_SLOTS and not (state is TrialState.STARTING and self.pending)
        if self.experiment.config.search is not None:
            waits = self.pending or (self.wait is not None and not self.wait.starts)
            return str(TrialState.RUNNING if holds_slots or not waits else TrialState.QUEUED)
        if holds_slots:
            return str(state)
        ended = [trial.state for trial in self.trials[:1] if trial.state in TRIAL_ENDED]  # soon the experiment, too
        return str(ended[0] if ended else TrialState.QUEUED)

    def shows(self, state: str | None) -> bool:
        """Return whether a list of the experiments of this state has the experiment; None lists all of them."""
        return state in (None, self.state, str(self.experiment.state))

    @property
    def pending(self) -> list[Attempt]:
        """Return the attempts that wait in an engine's own queue, such as Slurm's.

        Empty if any attempt is past that queue and has not ended, for example runs.
        """
        open_ones = [each for each in self.attempts if each.state is not AttemptState.ENDED]
        return open_ones if all(each.state is AttemptState.PENDING for each in open_ones) else []

    @property
    def counts(self) -> dict[TrialState, int]:
        """Return the number of trials in each state that any trial has."""
        return self.trial_counts or dict(Counter(trial.state for trial in self.trials))

    @property
    def trial_limit(self) -> int | None:
        """Return the maximum number of trials; None if the budget, `--max-time` or the method determines it."""
        search = self.experiment.config.search
        if search is None:
            return None
        if search.ends_by_use:
            return search.trials
        return search.trials or self.default_trials or search.default_trials

    @property
    def front(self) -> Trial | None:
        """Return the trial to display first: the best by the metric, or the first before any validation.

        None if the experiment has no trial yet.
        """
        by_index = {trial.index: trial for trial in self.trials}
        best = best_of(best_values(self.trials), self.experiment.config.metric)
        return next(iter(self.trials), None) if best is None else by_index[best]

    @property
    def ended(self) -> bool:
        """Return whether the experiment has ended."""
        return self.experiment.state in EXPERIMENT_ENDED

    @property
    def at_rest(self) -> bool:
        """Return whether the experiment has ended, or is paused by a failure that a user must fix."""
        return self.ended or self.stuck is not None

    @property
    def stuck(self) -> Failure | None:
        """Return the storage failure that paused the experiment until a user fixes it; None if there is none."""
        if self.experiment.state is not ExperimentState.PAUSED:
            return None
        return next((trial.failure for trial in self.trials if trial.failure and trial.failure.of_storage), None)

    def json_text(self) -> str:
        """Return the experiment as the API and `--json` show it: `id`, `state` and `name` first, then all fields."""
        first = json.dumps({"id": self.experiment.number, "state": self.state, "name": self.experiment.name})
        return f"{first[:-1]}, {super().json_text()[1:]}"

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema; for serialisation it includes the fields that `json_text` adds."""
        found = handler(core_schema)
        if handler.mode == "serialization":
            own = handler.resolve_ref_schema(found)
            first = {"id": {"type": "integer"}, "state": {"type": "string"}, "name": {"type": "string"}}
            own["properties"] = {**first, **own["properties"]}
            own["required"] = [*first, *own["required"]]
        return found

    def after(self, message: Message) -> Overview:
        """Return this overview updated by a message of the stream; messages that it already includes are ignored."""
        if message.seq <= self.seq or message.experiment != self.experiment.number:
            return self
        changed: dict[str, Any] = {"seq": message.seq}
        if message.type in ("trial", "attempt", "report"):
            changed["starting"] = ""
        match message.type:
            case "experiment":
                changed["experiment"] = read(Experiment, message.data)
            case "trial":
                changed |= self._with(read(Trial, message.data))
            case "attempt":
                attempt = read(Attempt, message.data)
                changed["attempts"] = _newest(_replaced(self.attempts, attempt, lambda each: each.id), attempt.trial)
            case "report":
                report, metric = read(StoredReport, message.data), self.experiment.config.metric
                changed["trials"] = tuple(_moved_on(trial, report, metric) for trial in self.trials)
            case "note" if message.data["text"] not in self.warnings:
                text = str(message.data["text"])
                changed["warnings"] = (*self.warnings, text)
                if message.data.get("level") == "info":
                    changed["informational"] = (*self.informational, text)
            case "artifact":
                changed["artifacts_seq"] = message.seq
        if message.type in ("trial", "attempt"):
            changed["wait"] = None
        return self.model_copy(update=changed)

    def _with(self, trial: Trial) -> dict[str, Any]:
        """Return the overview's changed fields, by name, after an update of one trial.

        If there are very many trials, `trials` has only those to display, and `trial_counts` counts all.
        """
        metric = self.experiment.config.metric
        trials = _replaced(self.trials, trial, lambda each: each.index)
        if not self.trial_counts and len(trials) <= MOST:
            return {"trials": trials}
        counts = Counter(self.counts)
        before = next((each.state for each in self.trials if each.index == trial.index), None)
        if before is None and trial.index <= counts.total():
            before = TrialState.PAUSED  # a trial that is not displayed is paused; ended ones do not change
        counts[trial.state] += 1
        if before is not None:
            counts[before] -= 1
        kept = shown_trials([TrialActivity.at(each) for each in trials], metric)
        return {
            "trials": tuple(each for each in trials if each.index in kept),
            "trial_counts": {state: count for state, count in counts.items() if count > 0},
            "attempts": tuple(each for each in self.attempts if each.trial in kept),
        }


def _moved_on(trial: Trial, report: StoredReport, metric: Metric) -> Trial:
    if trial.index != report.trial:
        return trial
    changed: dict[str, Any] = {}
    if report.step >= trial.step:
        changed |= {"step": report.step, "epoch": report.epoch}
        changed["metrics" if report.kind == "validation" else "training"] = report.metrics
    if report.kind == "validation":
        changed["best"] = better(trial.best, report, metric)  # the report of an older attempt may arrive late
    return trial.model_copy(update=changed)


def _replaced(items: tuple[_T, ...], new: _T, key: Callable[[_T], Any]) -> tuple[_T, ...]:
    kept = [item for item in items if key(item) != key(new)]
    return tuple(sorted([*kept, new], key=key))


def _newest(attempts: tuple[Attempt, ...], trial: int) -> tuple[Attempt, ...]:
    dropped = [attempt for attempt in attempts if attempt.trial == trial][:-ATTEMPTS]
    return tuple(attempt for attempt in attempts if attempt not in dropped)


class NodeRun(Record):
    """Gang, notebook server or program outside of Daylight that holds slots of a node.

    If the user may not see it, only its group is given, and not even that if the group is a single user.
    """

    slots: int
    group: str
    owner: str = ""
    experiment: int | None = None
    trial: int | None = None
    server: str | None = None  # of a notebook server its full name: `dave/`
    last_activity: FiniteFloat | None = None  # of a server, and of a gang that leaves its slots unused
    take_back_at: FiniteFloat | None = None  # when it may be stopped to reclaim its slots, unless it is used until then
    outside: str = ""  # of a program outside of Daylight its name, such as `pod ml/web`


class NodeUse(Record):
    """Node with the gangs and notebook servers that hold its slots."""

    name: str
    kind: str
    slots: int
    used: int
    devices: tuple[str, ...] = ()
    healthy: bool = True
    pool: str = LOCAL
    address: str = ""
    drained: bool = False  # running gangs continue, no new ones start
    state: str = ""  # in its engine's words, such as Slurm's `idle` or `down*`; "": its engine has none
    reason: str = ""  # why it is out of use, in its engine's words
    suspicion: Suspicion | None = None  # why it is left out for a while
    runs: tuple[NodeRun, ...] = ()

    @property
    def usable(self) -> bool:
        """Return whether new gangs may be placed on this node."""
        return self.healthy and not self.drained and (self.suspicion is None or not self.suspicion.left_out)


class LogChunk(Record):
    """Piece of a rank's log as text; the next piece starts at byte `offset`."""

    attempt: int
    rank: int
    text: str
    offset: int
    size: int
    ended: bool  # the attempt has ended, so that the log grows no more


class CheckpointInfo(Record):
    """Committed checkpoint of a trial, as the API lists it."""

    id: str  # <step>-<attempt>
    trial: int
    step: int
    epoch: FiniteFloat
    bytes: int
    at: FiniteFloat
    metrics: dict[str, float] = {}  # validation at its step; empty without one
    verified: Literal["yes", "damaged", "not read"] = "not read"
    problem: str = ""  # description of the damage
    kept: tuple[str, ...] = ()  # reasons to retain it; empty: the rules may delete it
    pinned: bool = False

    @property
    def order(self) -> tuple[int, int]:
        """Return the key that sorts a trial's checkpoints, oldest first."""
        step, _, attempt = self.id.partition("-")
        return int(step), int(attempt)

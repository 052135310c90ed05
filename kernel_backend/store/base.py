"""What a store promises: records in and out, one transaction a method, one numbered stream of changes.

Every method may be called from any thread and blocks until the database has answered, so an event loop calls
it through `asyncio.to_thread`. A method that writes is one transaction: it is stored whole or not at all.
Times (`at`) are seconds since the epoch and always the caller's: a store has no clock. Any method may raise
StoreUnavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pydantic import Field

from kernel_backend.errors import DaylightError
from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.cluster.accounts import AccountKind, AuditEntry
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.cluster.usage import ReservationRecord, UsageInterval
from kernel_backend.model.events import Event
from kernel_backend.model.experiment import LONGEST_NAME, Config, Experiment, ScheduledExperiment
from kernel_backend.model.facts import StoredFact
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.record import Record, Value
from kernel_backend.model.reports import Kind, SpoolRecord, StoredReport
from kernel_backend.model.resources import Placement
from kernel_backend.model.search.effects import Effect
from kernel_backend.model.search.records import LogEntry
from kernel_backend.model.search.space import Space
from kernel_backend.model.states import TrialState
from kernel_backend.model.stream import Message
from kernel_backend.model.trial import Attempt, ScheduledTrial, Trial
from kernel_backend.model.views.curves import ReportedValues
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.search_status import TrialSummary


class StoreUnavailable(DaylightError):
    """The database cannot be read or written just now; nothing of the call was stored: repeat it later."""

    http_status = 503


class NewExperiment(Record):
    """An experiment before it has a number; a name may be empty, and is stripped."""

    name: str = Field("", max_length=LONGEST_NAME)
    owner: str
    group: str
    snapshot: str
    config: Config
    params: dict[str, Value]
    space: Space = Space()
    python: str
    cwd: str
    notebook: str | None = None
    rerun_of: int | None = None
    begins_from: str | None = None


class Scheduled(NamedTuple):
    """What the scheduler reads of all that goes on, but for attempts."""

    experiments: list[ScheduledExperiment]  # that have not ended, oldest first; those that search are whole records
    trials: list[ScheduledTrial]  # the restless ones of these, by experiment and index
    unreadable: dict[int, str]  # experiments that are left out, for a record of theirs cannot be read: why


Held = tuple[float, float | None, int]  # slots were held from, until (None: they still are), and how many


# What an experiment is to become, field by field but for its state, and what is to be kept of who has done it.
Change = Callable[[Experiment], tuple[Mapping[str, Any], AuditEntry | None]]


class QuotaStore(Protocol):
    """Keep quotas, drains and priorities; each change and its audit entry are one transaction."""

    def quotas(self) -> dict[tuple[AccountKind, str], dict[str, Any]]:
        """The numbers that were set here, by account: fields of Quota as JSON has them."""

    def set_quota(self, kind: AccountKind, name: str, changed: Mapping[str, Any], deed: AuditEntry) -> AuditEntry:
        """Have these be all the numbers that are set here for an account; without any there is nothing set."""

    def drained(self) -> frozenset[str]:
        """The nodes on which nothing new is started."""

    def set_drained(self, node: str, drained: bool, deed: AuditEntry) -> bool:
        """Drain a node, or no longer; false, and no deed, where it was so already."""

    def update_experiment(self, number: int, at: float, change: Change) -> Experiment:
        """The experiment with other fields, by what `change` makes of it, and a deed where that gives one.

        Raises NotFound, and what `change` raises: then nothing is written.
        """

    def write_down(self, deed: AuditEntry) -> AuditEntry:
        """Keep a deed, with its number."""

    def audit(self, before: int | None = None, limit: int = 100, search: str = "") -> list[AuditEntry]:
        """At most `limit` deeds, of those before number `before`, newest first.

        Of a `search` those in which all of its words are: in who, act, on or detail, whatever their case.
        """

    def held(self, kind: AccountKind, name: str, since: float, until: float) -> list[Held]:
        """What an account's attempts have held at any time between `since` and `until`, in no order; quick."""


class Store(QuotaStore, Protocol):
    """The memory of the service."""

    def add_experiment(self, draft: NewExperiment, at: float, beyond: int = 0) -> tuple[Experiment, Trial | None]:
        """The new experiment, active, with the next number, and its first trial, queued: none where there is a search.

        The number is above all in the store, and above `beyond`. The trials of a search are those that it decides on.
        """

    def experiment(self, number: int) -> Experiment:
        """One experiment; raises NotFound."""

    def experiments(
        self, owner: str | None = None, state: str | None = None, search: str | None = None, limit: int = 50
    ) -> list[Experiment]:
        """Experiments, newest first.

        `state` is the word that an overview shows (`running` is an active experiment whose liveliest trial
        runs) or an experiment's own state; raises InvalidRequest for any other. `search` is a part of the
        name, the note or a tag in any case, or a number with or without `#`.
        """

    def overview(self, number: int) -> Overview:
        """One experiment as `overviews` shows it; raises NotFound."""

    def overviews(
        self,
        owner: str | None = None,
        state: str | None = None,
        search: str | None = None,
        limit: int = 50,
        group: str | None = None,
        seen_by: Person | None = None,
        tags: Sequence[str] = (),
    ) -> list[Overview]:
        """The same experiments as people look at them, quickly: their trials, the newest ten attempts of each, and
        their notes as warnings. A store does not know why one waits, nor what its snapshot warns of.

        `group` is one for which slots were asked; `seen_by` leaves out what this user may not see; of
        `tags` an experiment has all, in any case.
        """

    def experiment_before(self, experiment: Experiment) -> Experiment | None:
        """The newest older one of the same owner and notebook, without a notebook of the same name; reruns left out."""

    def unfinished_experiments(self) -> list[Experiment]:
        """All experiments that have not ended, oldest first."""

    def advance_experiment(
        self, number: int, event: Event, at: float, deed: AuditEntry | None = None, **changes: Any
    ) -> Experiment:
        """The experiment after `event`, with `changes` to its other fields, and a deed; `ended_at` follows its state.

        Raises NotFound, and IllegalTransition where the state table has no such row: then nothing is written.
        """

    def trials(self, number: int, states: Collection[TrialState] | None = None) -> list[Trial]:
        """The trials of an experiment by index, of all states or of these; empty where there is no such experiment."""

    def restless_trials(self, number: int) -> list[Trial]:
        """Return the trials that have not ended, but for those that nothing but a search holds, by index."""

    def scheduled(self) -> Scheduled:
        """Return what the scheduler reads of all that goes on; quick, however much there is.

        A record that cannot be read is no error: its experiment is left out, with all of its trials.
        """

    def trial_counts(self, number: int) -> dict[TrialState, int]:
        """How many trials of an experiment are in each state that any is in; quick, however many there are."""

    def outlines(self, number: int) -> list[TrialSummary]:
        """The trials of an experiment by index, a little of each; quick, however many there are."""

    def trial(self, number: int, index: int) -> Trial:
        """One trial; raises NotFound."""

    def trial_uid(self, number: int, index: int) -> str:
        """Return the identity of a trial, which no other trial ever has; "" for one of before there were any.

        Raises NotFound.
        """

    def newest_attempts(self) -> dict[tuple[int, int], int]:
        """Return the number of each trial's newest attempt, 0 before the first, by experiment and index."""

    def live_trials(self) -> list[Trial]:
        """All trials that neither rest nor have ended, oldest in the queue first."""

    def advance_trial(self, number: int, index: int, event: Event, at: float, **changes: Any) -> Trial:
        """The trial after `event`, with `changes` to its other fields; `ended_at` follows its state.

        Raises NotFound, and IllegalTransition where the state table has no such row: then nothing is written.
        """

    def add_attempt(
        self,
        number: int,
        index: int,
        placement: Placement,
        resume_from: str | None,
        token_digest: str,
        at: float,
        beyond: int = 0,
    ) -> Attempt:
        """The trial's next attempt, placed: the trial is starting, and every older attempt is fenced.

        Its number is above those of all its attempts in the store, and above `beyond`.
        Raises NotFound, and IllegalTransition unless the trial was queued.
        """

    def attempt(self, key: AttemptId) -> Attempt:
        """One attempt; raises NotFound."""

    def attempts(self, number: int, index: int) -> list[Attempt]:
        """The attempts of a trial, oldest first."""

    def open_attempts(self) -> list[Attempt]:
        """All attempts that have not ended, oldest first."""

    def token_digest(self, key: AttemptId) -> str:
        """The digest of the attempt's token; raises NotFound."""

    def advance_attempt(self, key: AttemptId, event: Event, at: float, **changes: Any) -> Attempt:
        """The attempt after `event`, with `changes`; `ended_at` follows its state.

        Raises NotFound, IllegalTransition.
        """

    def note(self, key: AttemptId, text: str, at: float) -> None:
        """Say a sentence of warning about an attempt to whoever watches; raises NotFound."""

    def accept(self, key: AttemptId, records: Sequence[SpoolRecord], at: float) -> int:
        """Take in what an attempt's spool says; the number of the newest record that has been taken, ever.

        Records that were taken before are skipped. A report for a (trial, kind, step) that is known changes
        nothing: the first word wins. The trial's progress only goes forward, and its `best` is the best of all that
        count, in whatever order they come. A fenced attempt's reports and artifacts count up to the step that its
        successor resumed from, and nothing else of it does. Raises NotFound, and InvalidRequest where they are
        out of order: then nothing is stored.
        """

    def messages(self, after: int, experiment: int | None = None, limit: int = 1000) -> list[Message]:
        """At most `limit` messages above sequence number `after`, in order; none is ever skipped."""

    def changes(self, after: int, limit: int = 1000) -> list[Message]:
        """The same of experiments, trials and attempts alone."""

    def last_seq(self) -> int:
        """The sequence number of the newest message; 0 before the first."""

    def reports(
        self, number: int, trial: int, kind: Kind | None = None, after: int = 0, limit: int | None = None
    ) -> list[StoredReport]:
        """A trial's reports with a sequence number above `after`, in that order."""

    def told(self, number: int, trial: int, after: int = 0) -> ReportedValues:
        """What a trial's reports with a sequence number above `after` told, quickly; `join` it to what came before.

        Late reports of an older attempt have new sequence numbers, so asking on from the newest misses none.
        """

    def record(
        self, number: int, entries: Sequence[LogEntry], effects: Sequence[Effect] = (), *, at: float
    ) -> list[Trial]:
        """Append to a search's log and do to its trials what was decided, all or nothing; the trials as they are now.

        Without entries it only moves trials, of any experiment.
        Raises Conflict unless the entries' numbers follow upon the log's newest: somebody else has decided meanwhile.
        Raises NotFound, and IllegalTransition where a trial has moved on since.
        """

    def search_log(self, number: int, after: int = 0, limit: int | None = None) -> list[LogEntry]:
        """At most `limit` entries of a search's log above number `after`, in order.

        Who only passes over 100,000 of them is quicker by pages of a thousand: kept together, they cost as much again.
        """

    def validations(self, number: int, after: int = 0) -> list[StoredReport]:
        """What all trials of an experiment reported of their validations above sequence number `after`, in order."""

    def slot_seconds(self, number: int, at: float) -> float:
        """How long the trials of an experiment have held slots up to now, over all slots."""

    def trial_seconds(self, number: int, at: float) -> dict[int, float]:
        """The same of each trial that has held any, by its index."""

    def spells(self, since: float) -> list[UsageInterval]:
        """What all attempts held that have not ended, or ended after `since`, the oldest first."""

    def claims(self) -> list[ReservationRecord]:
        """What was promised to whom."""

    def keep_claims(self, made: Sequence[ReservationRecord], gone: Sequence[ReservationRecord] = ()) -> None:
        """Keep these, in place of what was kept under the same keys, and forget those that are `gone`."""

    def facts(self, number: int, trial: int) -> list[StoredFact]:
        """What the attempts of a trial found out about what its result depends on, the oldest attempt's first."""

    def artifacts(self, number: int) -> list[Artifact]:
        """What the trials of an experiment have kept, the newest of each name, by trial and name."""

    def artifact(self, number: int, trial: int, name: str) -> Artifact:
        """One of them; raises NotFound."""

    def close(self) -> None:
        """Let go of the database; the store is of no use afterwards."""

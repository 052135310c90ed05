"""Define the interface of a store: records in and out, one transaction per method, one numbered stream of changes.

Every method may be called from any thread and blocks until the database has answered, so an event loop calls it through
`asyncio.to_thread`. A method that writes is one transaction: all of it is stored, or nothing. Times (`at`) are seconds
since the epoch and come from the caller: a store reads no clock. Any method may raise StoreUnavailable.
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
    """Error: the database cannot be read or written at present.

    Nothing of the call was stored: repeat it later.
    """

    http_status = 503


class NewExperiment(Record):
    """Experiment to be stored, which has no number yet; its name may be empty, and is stripped."""

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
    """Unfinished experiments, active trials and open attempts, with the fields that the scheduler reads."""

    experiments: list[ScheduledExperiment]  # that have not ended, oldest first; those that search are whole records
    trials: list[ScheduledTrial]  # the active ones of these, by experiment and index
    attempts: list[Attempt]  # that have not ended, those whose experiments are left out too: their slots are taken
    unreadable: dict[int, str]  # experiments that are left out, for one of their records cannot be read: why


Held = tuple[float, float | None, int]  # slots were held from, until (None: they still are), and how many


# New fields of an experiment, all but its state, and the audit entry, if any.
Change = Callable[[Experiment], tuple[Mapping[str, Any], AuditEntry | None]]


class QuotaStore(Protocol):
    """Store quotas, drained nodes and priorities; each change is one transaction with its audit entry."""

    def quotas(self) -> dict[tuple[AccountKind, str], dict[str, Any]]:
        """Return the quota numbers that admins set here, by account: fields of `Quota` as JSON."""

    def set_quota(self, kind: AccountKind, name: str, changed: Mapping[str, Any], entry: AuditEntry) -> AuditEntry:
        """Replace all quota numbers that admins set for an account; an empty mapping removes them."""

    def drained(self) -> frozenset[str]:
        """Return the names of drained nodes, on which nothing new is started."""

    def set_drained(self, node: str, drained: bool, entry: AuditEntry) -> bool:
        """Drain or undrain a node; False, and no audit entry, where that changes nothing."""

    def update_experiment(self, number: int, at: float, change: Change) -> Experiment:
        """Update an experiment with the fields that `change` returns, and store its audit entry if there is one.

        Raises NotFound, and any error that `change` raises: then nothing is stored.
        """

    def write_down(self, entry: AuditEntry) -> AuditEntry:
        """Store an audit entry; return it with its number."""

    def audit(self, before: int | None = None, limit: int = 100, search: str = "") -> list[AuditEntry]:
        """Return at most `limit` audit entries with numbers below `before`, newest first.

        A `search` selects entries that contain all of its words: in who, act, on or detail, whatever their case.
        """

    def held(self, kind: AccountKind, name: str, since: float, until: float) -> list[Held]:
        """Return the slots that an account's attempts held between `since` and `until`, unordered; quick."""


class Store(QuotaStore, Protocol):
    """Store of experiments, trials, attempts, reports and searches."""

    def add_experiment(self, draft: NewExperiment, at: float, beyond: int = 0) -> tuple[Experiment, Trial | None]:
        """Store a new experiment, active, with the next number, and its first trial, queued: None for a search.

        The number is above all numbers in the store, and above `beyond`. The trials of a search are created later, by
        its decisions.
        """

    def experiment(self, number: int) -> Experiment:
        """Return one experiment; raises NotFound."""

    def experiments(
        self, owner: str | None = None, state: str | None = None, search: str | None = None, limit: int = 50
    ) -> list[Experiment]:
        """Return experiments, newest first.

        `state` is the state that an overview shows (of an active experiment, that of its liveliest trial: running
        before queued) or an experiment's own state; raises InvalidRequest for any other. `search` is a part of the
        name, the note or a tag in any case, or a number with or without `#`.
        """

    def overview(self, number: int) -> Overview:
        """Return one experiment as `overviews` shows it; raises NotFound."""

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
        """Return experiments for display, quickly: trials, the newest ten attempts of each, and notes as warnings.

        Wait reasons and the warnings of snapshots are not in a store. `group` selects experiments that request slots
        for it; `seen_by` leaves out those that this user may not see; with `tags` an experiment must have all of them,
        in any case.
        """

    def experiment_before(self, experiment: Experiment) -> Experiment | None:
        """Return the newest older experiment of the same owner and notebook, else of the same name; no reruns."""

    def unfinished_experiments(self) -> list[Experiment]:
        """Return all experiments that have not ended, oldest first."""

    def deleted_experiments(self) -> list[Experiment]:
        """Return the experiments that are deleted and not purged yet."""

    def warm_start_sources(self, number: int) -> list[tuple[str, int]]:
        """Return an experiment's checkpoints (`12.1/500-2`) that others begin from, with the numbers of these others.

        Deleted experiments are left out.
        """

    def warm_started(self) -> list[Experiment]:
        """Return the searches that warm-start from other experiments, by results or weights, and are not deleted."""

    def snapshot_users(self, snapshot: str, but: int) -> list[int]:
        """Return the numbers of the experiments with this snapshot that are not purged, except experiment `but`."""

    def purge(self, number: int, at: float) -> None:
        """Delete the reports, messages, facts, artifacts, search log, parameters and labels of a deleted experiment.

        Its number, owner, trials and attempts stay, since slot usage is computed from them.
        """

    def unfinished_names(self) -> dict[int, str]:
        """Return the names of all experiments that have not ended, by number; quick with 100,000."""

    def repeated_by(self, draft: NewExperiment) -> list[Experiment]:
        """Return the active and paused experiments with a draft's owner, folder, interpreter, parameters and space.

        Newest first; quick with 100,000 others. Experiments that cannot be read are left out.
        """

    def advance_experiment(
        self, number: int, event: Event, at: float, entry: AuditEntry | None = None, **changes: Any
    ) -> Experiment:
        """Apply `event` to an experiment with `changes` to its other fields, and store an audit entry.

        `ended_at` follows its state. Raises NotFound, and IllegalTransition where the state table has no such row: then
        nothing is stored.
        """

    def trials(self, number: int, states: Collection[TrialState] | None = None) -> list[Trial]:
        """Return the trials of an experiment by index, of all states or of these; empty for an unknown experiment."""

    def restless_trials(self, number: int) -> list[Trial]:
        """Return an experiment's trials that have not ended, by index, except those paused by their search alone."""

    def scheduled(self) -> Scheduled:
        """Return the unfinished work that the scheduler reads; quick, however much there is.

        If a record cannot be read, its experiment is left out with all of its trials, and reported as unreadable.
        """

    def trial_counts(self, number: int) -> dict[TrialState, int]:
        """Return the number of an experiment's trials by state; quick, however many there are."""

    def outlines(self, number: int) -> list[TrialSummary]:
        """Return summaries of the trials of an experiment by index; quick, however many there are."""

    def trial(self, number: int, index: int) -> Trial:
        """Return one trial; raises NotFound."""

    def trial_uid(self, number: int, index: int) -> str:
        """Return the unique identity of a trial; "" for trials older than these identities. Raises NotFound."""

    def newest_attempts(self) -> dict[tuple[int, int], int]:
        """Return the number of each trial's newest attempt, 0 before the first, by (experiment, index)."""

    def live_trials(self) -> list[Trial]:
        """Return all trials that are neither paused nor ended, oldest in the queue first."""

    def advance_trial(self, number: int, index: int, event: Event, at: float, **changes: Any) -> Trial:
        """Apply `event` to a trial, with `changes` to its other fields; `ended_at` follows its state.

        Raises NotFound, and IllegalTransition where the state table has no such row: then nothing is stored.
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
        """Store a trial's next attempt as placed, set the trial to starting, and fence all older attempts.

        Its number is above those of the trial's attempts in the store, and above `beyond`. Raises NotFound, and
        IllegalTransition unless the trial was queued.
        """

    def attempt(self, key: AttemptId) -> Attempt:
        """Return one attempt; raises NotFound."""

    def attempts(self, number: int, index: int) -> list[Attempt]:
        """Return the attempts of a trial, oldest first."""

    def open_attempts(self) -> list[Attempt]:
        """Return all attempts that have not ended, oldest first."""

    def token_digest(self, key: AttemptId) -> str:
        """Return the digest of the attempt's token; raises NotFound."""

    def advance_attempt(self, key: AttemptId, event: Event, at: float, **changes: Any) -> Attempt:
        """Apply `event` to an attempt, with `changes` to its other fields; `ended_at` follows its state.

        Raises NotFound, IllegalTransition.
        """

    def note(self, key: AttemptId, text: str, at: float) -> None:
        """Publish a warning about an attempt to all who watch its experiment; raises NotFound."""

    def accept(self, key: AttemptId, records: Sequence[SpoolRecord], at: float) -> int:
        """Store the records of an attempt's spool; return the number of the newest record ever stored of it.

        Records that were stored before are skipped. Of two reports for a (trial, kind, step) the first counts. The
        trial's progress never goes back, and its `best` is the best of all reports that count, in whatever order they
        come. Of a fenced attempt, reports and artifacts count up to the step that its successor resumed from, and no
        other records. Raises NotFound, and InvalidRequest for records out of order: then nothing is stored.
        """

    def messages(self, after: int, experiment: int | None = None, limit: int = 1000) -> list[Message]:
        """Return at most `limit` messages above sequence number `after`, in order; none is ever skipped."""

    def changes(self, after: int, limit: int = 1000) -> list[Message]:
        """Return at most `limit` messages above sequence number `after` that hold experiments, trials and attempts."""

    def last_seq(self) -> int:
        """Return the sequence number of the newest message; 0 before the first."""

    def reports(
        self, number: int, trial: int, kind: Kind | None = None, after: int = 0, limit: int | None = None
    ) -> list[StoredReport]:
        """Return a trial's reports with a sequence number above `after`, in that order."""

    def reported_values(self, number: int, trial: int, after: int = 0) -> ReportedValues:
        """Return the values of a trial's reports above sequence number `after`, in columns, quickly.

        `join` appends them to earlier ones. Late reports of an older attempt get new sequence numbers, so reading on
        from the newest misses none.
        """

    def record(
        self, number: int, entries: Sequence[LogEntry], effects: Sequence[Effect] = (), *, at: float
    ) -> list[Trial]:
        """Append entries to a search's log and apply the effects to its trials, in one transaction; return the trials.

        Without entries it only changes trials, of any experiment. Raises Conflict unless the entries' numbers follow
        the log's newest, since another writer may have decided meanwhile. Raises NotFound, and IllegalTransition where
        a trial has changed state since.
        """

    def search_log(self, number: int, after: int = 0, limit: int | None = None) -> list[LogEntry]:
        """Return at most `limit` entries of a search's log above number `after`, in order.

        Read a log of 100,000 entries by pages of a thousand: that is quicker than all at once.
        """

    def validations(self, number: int, after: int = 0) -> list[StoredReport]:
        """Return the validation reports of all trials of an experiment above sequence number `after`, in order."""

    def slot_seconds(self, number: int, at: float) -> float:
        """Return the slot-seconds that the trials of an experiment have held up to `at`."""

    def trial_seconds(self, number: int, at: float) -> dict[int, float]:
        """Return the slot-seconds up to `at` by trial index, of each trial that has held slots."""

    def usage_intervals(self, since: float) -> list[UsageInterval]:
        """Return the usage intervals of attempts that have not ended, or ended after `since`, the oldest first."""

    def reservations(self) -> list[ReservationRecord]:
        """Return all reservation records."""

    def save_reservations(self, made: Sequence[ReservationRecord], gone: Sequence[ReservationRecord] = ()) -> None:
        """Store the records `made`, replacing those with the same keys, and delete those that are `gone`."""

    def facts(self, number: int, trial: int) -> list[StoredFact]:
        """Return the provenance records of a trial's attempts, the oldest attempt's first."""

    def artifacts(self, number: int) -> list[Artifact]:
        """Return the artifacts of an experiment's trials, by trial and name, the newest of each name."""

    def artifact(self, number: int, trial: int, name: str) -> Artifact:
        """Return one artifact; raises NotFound."""

    def close(self) -> None:
        """Close the database; the store cannot be used afterwards."""

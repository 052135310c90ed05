"""Define the interface of a store: one transaction per method, and one numbered stream of messages about all changes.

Methods may be called from any thread and block until the database has answered; in an event loop call them through
`asyncio.to_thread`. A method that writes stores all of its changes or none. Times (`at`) are seconds since the epoch
and come from the caller: a store reads no clock. Any method may raise StoreUnavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pydantic import Field

from kernel_backend.errors import DaylightError
from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.cluster.accounts import AccountKind, AuditEntry
from kernel_backend.model.cluster.monitored import StoreCounts
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.cluster.usage import ReservationRecord, UsageInterval
from kernel_backend.model.events import Event
from kernel_backend.model.experiment import LONGEST_NAME, Config, Experiment, ScheduledExperiment
from kernel_backend.model.facts import StoredFact
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.trace import Trace
from kernel_backend.model.node_faults import NodeFault, NodeName
from kernel_backend.model.record import Record, Value
from kernel_backend.model.reports import ArtifactSaved, Kind, NoteLevel, Report, SpoolRecord, StoredReport
from kernel_backend.model.resources import LOCAL, Placement
from kernel_backend.model.search.effects import Effect
from kernel_backend.model.search.records import LogEntry, LoggedReport
from kernel_backend.model.search.space import Space
from kernel_backend.model.states import TrialState
from kernel_backend.model.stream import Message
from kernel_backend.model.trial import Attempt, ScheduledTrial, Trial
from kernel_backend.model.views.curves import ReportedValues
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.search_status import TrialSummary
from kernel_backend.model.views.thinning import Thinned
from kernel_backend.store.measured.base import MeasuredStore
from kernel_backend.store.outbox.base import OutboxStore
from kernel_backend.store.register.base import RegisterStore


class StoreUnavailable(DaylightError):
    """Error: the database cannot be read or written at present.

    The failed call has stored nothing, so it can be repeated.
    """

    http_status = 503


class NewExperiment(Record):
    """Experiment that is to be stored and has no number yet; its name may be empty."""

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
    note: str = ""
    tags: tuple[str, ...] = ()
    request: str | None = None  # id of the request that makes it, which its owner's client has chosen


class Scheduled(NamedTuple):
    """Unfinished experiments, active trials and open attempts, with the fields that the scheduler needs."""

    experiments: list[ScheduledExperiment]  # unfinished, oldest first; searches as complete records
    trials: list[ScheduledTrial]  # active trials of these, by experiment and index
    attempts: list[Attempt]  # attempts that have not ended, also of unreadable experiments, as they hold slots
    unreadable: dict[int, str]  # experiments left out because a record cannot be read: the reason


Held = tuple[float, float | None, int]  # slots held: from, until (None: still held), number


# Returns new fields of an experiment except its state, and an audit entry or None.
Change = Callable[[Experiment], tuple[Mapping[str, Any], AuditEntry | None]]


class QuotaStore(Protocol):
    """Store of quotas, pools, drained and faulty nodes, priorities and the audit log.

    Each change is stored in one transaction with its audit entry.
    """

    def quotas(self) -> dict[tuple[AccountKind, str], dict[str, Any]]:
        """Return the quota fields that admins have set in this service, as JSON values by account (kind, name)."""

    def set_quota(self, kind: AccountKind, name: str, changed: Mapping[str, Any], entry: AuditEntry) -> AuditEntry:
        """Replace all quota fields that admins have set for an account by `changed`; an empty mapping removes them.

        Also store the audit entry `entry`, and return it with its number.
        """

    def drained(self) -> frozenset[str]:
        """Return the names of the nodes that an admin has drained: no new gang is started there."""

    def set_drained(self, node: str, drained: bool, entry: AuditEntry) -> bool:
        """Drain or undrain a node, and store the audit entry.

        Return False, and store nothing, if that changes nothing.
        """

    def node_faults(self, since: float) -> list[NodeFault]:
        """Return the faults of nodes since a time (seconds since the epoch), oldest first."""

    def add_node_fault(self, fault: NodeFault, forget: float) -> bool:
        """Store a fault of a node, and delete faults that are older than the time `forget` (seconds since the epoch).

        Return False if the fault was stored already.
        """

    def forgive_node(self, name: NodeName, entry: AuditEntry) -> bool:
        """Delete the faults of a node, and store the audit entry.

        Return False, and store nothing, if there are none.
        """

    def pools(self) -> list[Pool]:
        """Return the pools that admins have added by commands (not in the service's configuration), sorted by name."""

    def set_pool(self, name: str, settings: PoolSettings | None, entry: AuditEntry) -> bool:
        """Add a pool or replace its settings, and store the audit entry; `settings` of None removes the pool.

        Returns False, and stores nothing, if that changes nothing.
        """

    def update_experiment(self, number: int, at: float, change: Change) -> Experiment:
        """Change an experiment by a function, and store the audit entry if the function returns one.

        `change` gets the experiment, and returns the changed fields with an audit entry or None. Raises NotFound and
        any error of `change`; nothing is stored then.
        """

    def write_down(self, entry: AuditEntry) -> AuditEntry:
        """Store an audit entry; return it with its number."""

    def audit(self, before: int | None = None, limit: int = 100, search: str = "") -> list[AuditEntry]:
        """Return at most `limit` audit entries with numbers below `before`, newest first.

        `search` selects entries that contain all of its words in who, act, on or detail, ignoring case.
        """

    def held(self, kind: AccountKind, name: str, since: float, until: float) -> list[Held]:
        """Return how many slots a user's or group's attempts held, and when, between the times `since` and `until`.

        The intervals (start, end or None, number of slots) are in any order.
        """


class Store(QuotaStore, MeasuredStore, OutboxStore, RegisterStore, Protocol):
    """Store of all that the service keeps: experiments, trials, reports, searches, quotas, webhooks, models."""

    def product(self) -> str:
        """Return the database's product and version, such as `PostgreSQL 15.6`."""

    def add_experiment(self, draft: NewExperiment, at: float, beyond: int = 0) -> tuple[Experiment, Trial | None]:
        """Store a new active experiment with its first trial, which is queued; a search gets no trial yet.

        Return the experiment and the trial, or None for a search: its trials are created later, by decisions of its
        searcher. The experiment's number is above all numbers in the store and above `beyond`. If the same request has
        made an experiment before, that one is returned, and none is stored.
        """

    def made_by(self, owner: str, request: str) -> int | None:
        """Return the number of the experiment that a request of its owner has made; None if it has made none."""

    def experiment(self, number: int) -> Experiment:
        """Return the record of one experiment; raises NotFound."""

    def experiments(
        self, owner: str | None = None, state: str | None = None, search: str | None = None, limit: int = 50
    ) -> list[Experiment]:
        """Return at most `limit` experiments, newest first.

        `state` selects by an experiment's own state, or by the state that its overview shows; raises InvalidRequest for
        an unknown state. `search` is a part of the name, the note or a tag, ignoring case, or a number with or without
        `#`.
        """

    def overview(self, number: int) -> Overview:
        """Return the overview of one experiment, like `overviews`; raises NotFound."""

    def overviews(
        self,
        owner: str | None = None,
        state: str | None = None,
        search: str | None = None,
        limit: int = 50,
        group: str | None = None,
        seen_by: Person | None = None,
        tags: Sequence[str] = (),
        notebook: str | None = None,
        before: int | None = None,
        after: int | None = None,
    ) -> list[Overview]:
        """Return at most `limit` experiments for display, newest first: with trials, attempts, and notes as warnings.

        Only the newest ten attempts of each trial are read, for speed. Wait reasons and snapshot warnings are added by
        the service. `group` selects experiments that request slots for it; `seen_by` leaves out experiments that this
        user may not see; `tags` selects experiments that have all of these tags, ignoring case. `notebook` selects
        experiments from notebooks whose path ends with these names, `before` those with lower numbers, and `after`
        those that may have changed since this message, deleted ones included.
        """

    def experiments_before(self, experiment: Experiment | NewExperiment, limit: int = 1) -> list[Experiment]:
        """Return the newest earlier experiments of the same owner and notebook; without a notebook, of the same name.

        Names are the same if they are equal up to a colon, as in `train: lr 0.1`. Reruns are skipped.
        """

    def unfinished_experiments(self) -> list[Experiment]:
        """Return all experiments that have not ended, oldest first."""

    def ended_since(self, owner: str, since: float, limit: int) -> list[Experiment]:
        """Return an owner's experiments that ended after `since` and are not deleted; at most the newest `limit`."""

    def deleted_experiments(self) -> list[Experiment]:
        """Return the deleted experiments whose files have not been removed from disk yet."""

    def warm_start_sources(self, number: int) -> list[tuple[str, int]]:
        """Return which checkpoints of experiment `number` other experiments start from.

        Each pair is (checkpoint, number of the other experiment); deleted experiments are left out.
        """

    def warm_started(self) -> list[Experiment]:
        """Return the searches that start with results or weights of other experiments; deleted ones are left out."""

    def snapshot_users(self, snapshot: str, but: int) -> list[int]:
        """Return the numbers of the experiments that use a snapshot, except experiment `but`.

        Experiments whose files have been removed from disk are left out.
        """

    def purge(self, number: int, at: float) -> None:
        """Remove a deleted experiment's reports, messages, provenance records, artifacts, search log and parameters.

        Its name, note and tags are removed as well. Its number, owner, trials and attempts stay: slot usage is computed
        from them.
        """

    def counts(self, most: int) -> StoreCounts:
        """Return the numbers of experiments by state and of attempts by outcome, with the trials that hold slots.

        At most `most` of the trials that hold slots are listed.
        """

    def thin_reports(self, number: int, most: int, *, dry_run: bool = False) -> Thinned:
        """Remove training reports of an experiment until about `most` reports of each metric are left.

        Return how many reports were removed, and how many there were before. `spare_reports` chooses them; validations
        stay. With `dry_run` nothing is removed, only counted.
        """

    def unfinished_names(self) -> dict[int, str]:
        """Return the names of all unfinished experiments by number; fast even for 100,000 experiments."""

    def repeated_by(self, draft: NewExperiment) -> list[Experiment]:
        """Return the unfinished experiments of which a submission may be a duplicate, newest first.

        They have the same owner, folder, interpreter, parameters and space as the draft. Experiments whose records
        cannot be read are left out. It is fast even if there are 100,000 other experiments.
        """

    def advance_experiment(
        self, number: int, event: Event, at: float, entry: AuditEntry | None = None, **changes: Any
    ) -> Experiment:
        """Move an experiment to the next state by an event, change other fields, and store an audit entry if given.

        `ended_at` is set if the new state is an end. Raises NotFound, and IllegalTransition if its state does not allow
        the event; nothing is stored then.
        """

    def trials(self, number: int, states: Collection[TrialState] | None = None) -> list[Trial]:
        """Return an experiment's trials by index; only those in one of `states`, if given.

        The list is empty for an unknown experiment.
        """

    def restless_trials(self, number: int) -> list[Trial]:
        """Return an experiment's trials, ordered by index, except those that have ended or that a search has paused."""

    def scheduled(self) -> Scheduled:
        """Return the unfinished experiments, trials and attempts for the scheduler; fast even for 100,000 trials.

        If a stored record cannot be read, its experiment is left out with all of its trials, and listed as unreadable.
        """

    def trial_counts(self, number: int) -> dict[TrialState, int]:
        """Return the number of an experiment's trials by state; fast even for many thousands of trials."""

    def outlines(self, number: int, trials: Collection[int] | None = None) -> list[TrialSummary]:
        """Return summaries of an experiment's trials by index; fast even for many thousands of trials.

        `trials` selects trials by their indices; None selects all.
        """

    def touched_trials(self, number: int, after: int) -> set[int]:
        """Return the indices of an experiment's trials that may have changed since the message number `after`.

        A trial has changed if its summary (`outlines`) or the slot-seconds that it has used are different.
        """

    def trial(self, number: int, index: int) -> Trial:
        """Return the record of one trial; raises NotFound."""

    def trial_uid(self, number: int, index: int) -> str:
        """Return the unique id of a trial; raises NotFound.

        It is "" for a trial that an early version of Daylight has created without an id.
        """

    def newest_attempts(self) -> dict[tuple[int, int], int]:
        """Return the number of each trial's newest attempt (0 if there is none), by (experiment, trial index)."""

    def live_trials(self) -> list[Trial]:
        """Return all trials that have neither ended nor been paused, ordered by the time at which they were queued."""

    def advance_trial(self, number: int, index: int, event: Event, at: float, **changes: Any) -> Trial:
        """Move a trial to the next state by an event, and change other fields; an end sets `ended_at`.

        Raises NotFound, and IllegalTransition if the trial's state does not allow the event; nothing is stored then.
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
        granted: bool = True,
        pool: str = LOCAL,
    ) -> Attempt:
        """Store a trial's next attempt, which runs in `pool`, and set the trial to starting.

        All older attempts are fenced: most of what they still send is not stored (see `accept`).

        The attempt's state is placed, or pending if its slots are not `granted` yet. For a pending attempt, `placement`
        only says how many slots on how many nodes are requested. `resume_from` is the checkpoint from which it resumes,
        `token_digest` the digest of its secret token. The attempt's number is above those of the trial's attempts in
        the store, and above `beyond`. Raises NotFound, and IllegalTransition unless the trial is queued.
        """

    def attempt(self, key: AttemptId) -> Attempt:
        """Return the record of one attempt; raises NotFound."""

    def attempts(self, number: int, index: int) -> list[Attempt]:
        """Return the attempts of a trial, oldest first."""

    def open_attempts(self) -> list[Attempt]:
        """Return all attempts that have not ended, oldest first."""

    def trained_on(self, since: float, most: int) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return (snapshot, pool, names of nodes) for attempts that have begun to train, and were open after a time.

        The newest come first; there are at most `most`.
        """

    def token_digest(self, key: AttemptId) -> str:
        """Return the digest of the secret token that was issued for an attempt; raises NotFound."""

    def advance_attempt(self, key: AttemptId, event: Event, at: float, **changes: Any) -> Attempt:
        """Move an attempt to the next state by an event, and change other fields; an end sets `ended_at`.

        Raises NotFound, and IllegalTransition if the attempt's state does not allow the event.
        """

    def set_trace(self, key: AttemptId, trace: Trace, at: float) -> None:
        """Store and publish a request that an attempt's ranks record a trace (torch.profiler); raises NotFound."""

    def note(self, key: AttemptId, text: str, at: float, level: NoteLevel = "warning") -> None:
        """Store a note about an attempt, and publish it to everyone who watches the experiment; raises NotFound."""

    def accept(self, key: AttemptId, records: Sequence[SpoolRecord], at: float) -> int:
        """Store records that an attempt's launcher has sent; return the number of the attempt's newest stored record.

        Records that are stored already are skipped. Of several reports for the same trial, kind and step, the first is
        stored. The trial's progress never decreases, and its `best` is the best of all stored reports, regardless of
        the order of arrival. If a newer attempt exists (this one is fenced), only reports and artifacts up to the step
        from which the next attempt resumed are stored. Raises NotFound, and InvalidRequest for records out of order;
        nothing is stored then.
        """

    def add_validation(self, key: AttemptId, report: Report) -> None:
        """Store a validation of a trial that came from an evaluation, unless its step has these metrics already.

        `key` is the attempt that saved the measured checkpoint. Raises NotFound.
        """

    def keep_artifact(self, key: AttemptId, saved: ArtifactSaved) -> None:
        """Store an artifact of an attempt that did not come with the attempt's other records; idempotent.

        An artifact of this name from a later attempt is not replaced. Raises NotFound.
        """

    def messages(self, after: int, experiment: int | None = None, limit: int = 1000) -> list[Message]:
        """Return at most `limit` messages with sequence numbers above `after`, in order and without gaps."""

    def changes(self, after: int, limit: int = 1000) -> list[Message]:
        """Return at most `limit` messages above number `after` that contain experiments, trials or attempts."""

    def last_seq(self) -> int:
        """Return the sequence number of the newest message; 0 before the first."""

    def reports(
        self, number: int, trial: int, kind: Kind | None = None, after: int = 0, limit: int | None = None
    ) -> list[StoredReport]:
        """Return a trial's reports with sequence numbers above `after`, in order."""

    def reported_values(self, number: int, trial: int, after: int = 0) -> ReportedValues:
        """Return the values of a trial's reports with sequence numbers above `after`, as columns.

        To continue, pass the newest sequence number read; `join` then appends the new values to the earlier ones.
        Reports of an older attempt that arrive late get new sequence numbers, so that none is missed.
        """

    def record(
        self, number: int, entries: Sequence[LogEntry], effects: Sequence[Effect] = (), *, at: float
    ) -> list[Trial]:
        """Append entries to a search's log and apply their effects to its trials, in one transaction.

        Return the changed trials. Without entries, trials of any experiment may be changed. Raises Conflict unless the
        entries' numbers continue the log, as another writer may have appended entries meanwhile. Raises NotFound, and
        IllegalTransition if a trial's state does not allow the effect, because it has changed meanwhile.
        """

    def search_log(self, number: int, after: int = 0, limit: int | None = None) -> list[LogEntry]:
        """Return at most `limit` entries of a search's log with numbers above `after`, in order.

        A long log is read fastest in pages of a thousand entries.
        """

    def brief_log(self, number: int, after: int = 0, limit: int | None = None) -> list[LogEntry | LoggedReport]:
        """Return the same entries as `search_log`, with those about reports in a short form (`LoggedReport`).

        This is several times as fast as reading complete entries.
        """

    def search_history(self, number: int) -> bytes | None:
        """Return a search's history as `keep_search_history` stored it last; None if there is none."""

    def keep_search_history(self, number: int, packed: bytes) -> None:
        """Store a search's history, which a reader has computed from its log, as bytes; replace the stored one.

        Later readers need only read the log entries that were appended since. A power failure may lose the stored
        history, which is then computed from the log again.
        """

    def validations(self, number: int, after: int = 0) -> list[StoredReport]:
        """Return the validation reports of all trials of an experiment, ordered by their sequence numbers.

        Only reports with sequence numbers above `after` are returned.
        """

    def slot_seconds(self, number: int, at: float) -> float:
        """Return the slot-seconds that the trials of an experiment have used up to the time `at`."""

    def trial_seconds(self, number: int, at: float, trials: Collection[int] | None = None) -> dict[int, float]:
        """Return the slot-seconds that an experiment's trials have used up to the time `at`, by index.

        Only trials that have had an attempt are included. `trials` selects trials by their indices; None selects all.
        """

    def usage_intervals(self, since: float) -> list[UsageInterval]:
        """Return when attempts held slots, oldest first, for open attempts and those that ended after `since`."""

    def reservations(self) -> list[ReservationRecord]:
        """Return all stored reservations and queue positions of slot requests, for the scheduler after a restart."""

    def save_reservations(self, made: Sequence[ReservationRecord], gone: Sequence[ReservationRecord] = ()) -> None:
        """Store the reservation records `made`, replacing those with the same keys, and delete the records `gone`."""

    def facts(self, number: int, trial: int) -> list[StoredFact]:
        """Return the provenance records of a trial's attempts, oldest attempt first."""

    def artifacts(self, number: int) -> list[Artifact]:
        """Return an experiment's artifacts by trial and name; of each name the newest."""

    def artifact(self, number: int, trial: int, name: str) -> Artifact:
        """Return a trial's artifact by its name; raises NotFound."""

    def close(self) -> None:
        """Close the database; the store cannot be used afterwards."""

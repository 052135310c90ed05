"""Implement the operations that users, views and launchers call through the HTTP API."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any, BinaryIO

from kernel_backend.confined import Confined
from kernel_backend.engines.allocations.callers import CallingHolders
from kernel_backend.engines.probing.callers import CallingProbes
from kernel_backend.errors import Conflict, NotFound
from kernel_backend.fairness.owner_limit import READ_AT_ONCE, OwnerLimit
from kernel_backend.fairness.threads import FairThreads
from kernel_backend.model import events as e
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.environments import EnvironmentInfo
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.facts import StoredFact
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.labels import LabelEdit, apply_edit, edit_text
from kernel_backend.model.reports import Kind, StoredReport
from kernel_backend.model.search import registry
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.states import ExperimentState, IllegalTransition
from kernel_backend.model.times import Times
from kernel_backend.model.trial import checkpoint_step
from kernel_backend.model.views.curves import Curves
from kernel_backend.model.views.overview import LogChunk, Overview
from kernel_backend.model.views.search_status import SearchStatus
from kernel_backend.model.webhooks.records import EndedExperiments
from kernel_backend.service.access import changeable, may_continue, visible
from kernel_backend.service.admission import check_elastic, check_open, check_possible, check_workers
from kernel_backend.service.audit import audit_entry
from kernel_backend.service.context import Context
from kernel_backend.service.deletion import Deletion
from kernel_backend.service.disk import DiskMeter
from kernel_backend.service.duplicates import DuplicateFinder
from kernel_backend.service.environments import Preparation
from kernel_backend.service.loop.gang_nodes import GangNodes
from kernel_backend.service.loop.idle_review import IdleReview
from kernel_backend.service.loop.loop import Loop
from kernel_backend.service.numbering import Numbering
from kernel_backend.service.outbox.sender import OutboxSender
from kernel_backend.service.retention import Retention
from kernel_backend.service.state.requests import pools_of
from kernel_backend.service.state.start_phases import StartPhases
from kernel_backend.service.storage_limits import StorageLimits
from kernel_backend.service.verbs.artifacts import ArtifactVerbs
from kernel_backend.service.verbs.attempts import AttemptVerbs
from kernel_backend.service.verbs.checkpoints import CheckpointVerbs
from kernel_backend.service.verbs.cluster import ClusterVerbs
from kernel_backend.service.verbs.compare import CompareVerbs
from kernel_backend.service.verbs.move import MoveVerbs
from kernel_backend.service.verbs.node_environments import NodeEnvironments
from kernel_backend.service.verbs.pools import PoolVerbs
from kernel_backend.service.verbs.quotas import QuotaVerbs
from kernel_backend.service.verbs.register import ModelVerbs
from kernel_backend.service.verbs.reruns import RerunVerbs
from kernel_backend.service.verbs.search import SearchVerbs
from kernel_backend.service.verbs.staging import Staging
from kernel_backend.service.verbs.submission_validator import SubmissionValidator
from kernel_backend.service.verbs.submissions import SubmissionVerbs
from kernel_backend.service.verbs.traces import TraceVerbs
from kernel_backend.service.verbs.webhooks import WebhookVerbs
from kernel_backend.service.views.curves import CurveReader
from kernel_backend.service.views.ended import read_ended
from kernel_backend.service.views.monitoring import Monitoring
from kernel_backend.service.views.overviews import Overviews
from kernel_backend.service.views.redaction import NoteRedactor
from kernel_backend.service.views.spending import SpendingReader
from kernel_backend.service.views.times import read_times
from kernel_backend.service.views.utilisation import UtilisationReader
from kernel_backend.service.views.watchers import WatcherFeed
from kernel_backend.spec.resume import Resumption
from kernel_backend.spec.slots import resumed_note
from kernel_backend.store.base import StoreUnavailable

_log = logging.getLogger(__name__)

EVERY = 2**31 - 1  # all trials of a search


class Service:
    """Operations behind the HTTP API.

    An operation changes the store and wakes the control loop, which alone starts and ends gangs.
    """

    def __init__(self, context: Context, loop: Loop, preparation: Preparation) -> None:
        store, archive, engine = context.store, context.archive, context.engines
        storage, workspaces = context.checkpoint_storage, context.workspaces
        self._store, self._archive, self._engine, self._bus = store, archive, engine, context.bus
        self._loop, self._preparation, self.stored_quotas, self.notebooks = (
            loop,
            preparation,
            context.stored_quotas,
            loop.notebooks,
        )
        self._site_loads = context.site_loads
        self._curves = CurveReader(store)
        self._confined = Confined()
        self._retention = Retention(context)
        whole_files = OwnerLimit(READ_AT_ONCE, 2)
        self.checkpoints = CheckpointVerbs(store, storage, self._retention, whole_files)
        self.artifacts = ArtifactVerbs(store, workspaces, whole_files)
        self.models = ModelVerbs(store, self.checkpoints)
        self.compare = CompareVerbs(store, archive, storage, self._confined, whole_files)
        self.pages = context.pages
        self.numbering = Numbering(store, storage, workspaces, context.home)
        self._feed = WatcherFeed(store, self._bus)
        phases = StartPhases()
        self._overviews = Overviews(store, archive, loop.cluster_state, loop.searches.notice, phases)
        self.search = SearchVerbs(store, loop, self._changed)
        self.disk = DiskMeter(context)
        validator = SubmissionValidator(
            context,
            loop.cluster_state,
            preparation,
            self.checkpoints,
            self.models,
            self._confined,
            StorageLimits(self.disk, self.stored_quotas),
        )
        self.submissions = SubmissionVerbs(
            context,
            validator,
            DuplicateFinder(store, archive, self._confined),
            preparation,
            self.numbering,
            self.overview,
            self._changed,
        )
        self.reruns = RerunVerbs(store, self.checkpoints, validator, self.submissions)
        self.moves = MoveVerbs(context, loop.cluster_state, validator.python_in_pools, self._changed)
        self.quotas = QuotaVerbs(store, self.stored_quotas, loop.cluster_state.looking, self._changed)
        self.idle = IdleReview(context, loop.cluster_state, self._changed)
        self.cluster = ClusterVerbs(context, loop.cluster_state, self.overview, self._changed, lambda: self.idle.idle)
        self.probes, self.holders = CallingProbes(), CallingHolders(engine.keeping)
        self.pools = PoolVerbs(store, engine, loop.cluster_state, context, self._changed, self.probes)
        self.monitoring = Monitoring(store, loop.cluster_state, self.pools.statuses, loop.round_age)
        self.utilisation = UtilisationReader(store)
        self.spending = SpendingReader(store, engine, context.local_price)
        self.gang_nodes = GangNodes(
            store, engine.settings, self._bus, context.wake, context.nodes.blame, context.data_nodes.note
        )
        self.staging = Staging(store, archive, context.home, context.bus)
        self.node_environments = NodeEnvironments(
            store, preparation.recorded, self.staging.open, context.home, context.closed
        )
        self.deletion = Deletion(context)
        self._outbox = OutboxSender(store, context.bus, context.outbox)
        self.webhooks = WebhookVerbs(context, self._outbox)
        self.traces = TraceVerbs(store, self.overview, self._changed)
        self.attempts = AttemptVerbs(context, loop, self.traces, phases)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the background tasks.

        The control loop first takes over running gangs, and requeues trials whose gangs are gone.
        """
        asyncio.get_running_loop().set_default_executor(FairThreads())
        await asyncio.to_thread(self.numbering.look)
        for problem in await asyncio.to_thread(registry.shadowing):
            _log.warning("%s", problem)
        self._preparation.lookups.start()
        self._tasks = [
            asyncio.create_task(self._loop.run(), name="loop"),
            asyncio.create_task(self.deletion.run(), name="housekeeping"),
            asyncio.create_task(self._retention.run(), name="retention"),
            asyncio.create_task(self.idle.run(), name="idle slots"),
            asyncio.create_task(self._outbox.run(), name="outbox"),
            asyncio.create_task(self.search.run(), name="searches"),
        ]

    async def close(self) -> None:
        """End the background tasks and close the store; gangs keep running, and the next service takes them over."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._confined.close()
        await asyncio.to_thread(self._store.close)

    async def busy(self) -> bool:
        """Return whether there is work left: an active experiment, or a notice that is not delivered to its webhook.

        True if the database does not answer.
        """
        try:
            if await asyncio.to_thread(self._store.waiting_notices):
                return True
            if await asyncio.to_thread(self._store.live_trials):
                return True
            unfinished = await asyncio.to_thread(self._store.unfinished_experiments)
        except StoreUnavailable as error:
            _log.warning("whether there is work is not known: %s", error)
            return True
        return any(each.config.search and each.state is ExperimentState.ACTIVE for each in unfinished)

    async def database(self) -> str:
        """Return the product and version of the service's database."""
        return await asyncio.to_thread(self._store.product)

    # Reading

    async def overview(self, who: Person, number: int) -> Overview:
        """Return the overview of one experiment for a user; raises NotFound if they may not see it."""
        await self._visible(who, number)
        return await self._overviews.one(who, number)

    async def overviews(
        self,
        who: Person,
        state: str | None,
        search: str | None,
        limit: int,
        owner: str | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        notebook: str | None = None,
        before: int | None = None,
    ) -> list[Overview]:
        """Return the newest `limit` experiments of a user, newest first.

        They are the caller's own by default, else those of `owner` or `group` that the caller may see. An empty `group`
        selects all experiments that the caller may see. `state` and the text `search` select among them; so do `tags`
        (an experiment must have all of these), `notebook` (the last names of a notebook's path), and `before` (lower
        numbers only).
        """
        mine = who.name if owner is None and group is None else owner
        found: list[Overview] = []
        while True:  # the store lists those that may show the state
            chosen = mine, state, search, limit, group or None, who, tags, notebook, before
            known = await asyncio.to_thread(self._store.overviews, *chosen)
            found += [each for each in await self._overviews.complete(who, known) if each.shows(state)]
            if len(known) < limit or len(found) >= limit:
                return found[:limit]
            before = known[-1].experiment.number

    async def tabulated(self, who: Person, after: int | None, before: int | None, limit: int) -> list[Overview]:
        """Return at most `limit` of a user's own experiments for a table, newest first, without snapshot warnings.

        `before` selects lower numbers, and `after` what may have changed since this message, deleted ones included.
        """
        known = await asyncio.to_thread(self._store.overviews, who.name, limit=limit, before=before, after=after)
        return await self._overviews.explain_searches(who, known)

    async def ended(self, who: Person, since: float) -> EndedExperiments:
        """Return the user's own experiments that ended after `since` (seconds since the epoch): at most the newest 20.

        The result also says whether any of the user's experiments is still active.
        """
        return await asyncio.to_thread(read_ended, self._store, who.name, since, time.time())

    async def reports(
        self, who: Person, number: int, trial: int, kind: Kind | None, after: int, limit: int | None
    ) -> list[StoredReport]:
        """Return at most `limit` reports of a trial with sequence numbers above `after`, in the order of storage.

        `kind` selects reports of one kind; None selects all.
        """
        await self._visible(who, number)
        return await asyncio.to_thread(self._store.reports, number, trial, kind, after, limit)

    async def export(self, who: Person, number: int, trial: int | None) -> SearchStatus | Sequence[StoredReport]:
        """Return the data that a CSV export contains: the reports of a trial, by default of the first.

        For a search without `trial` it is the search's status with all its trials.
        """
        experiment = await self._visible(who, number)
        if experiment.config.search is not None and trial is None:
            return await self.search.status(who, number, sort="trial", limit=EVERY)
        await asyncio.to_thread(self._store.trial, number, trial or 1)  # raises NotFound
        return await asyncio.to_thread(self._store.reports, number, trial or 1)

    async def facts(self, who: Person, number: int, trial: int) -> list[StoredFact]:
        """Return the provenance records of a trial's attempts in order, such as files read and library versions."""
        await self._visible(who, number)
        return await asyncio.to_thread(self._store.facts, number, trial)

    async def times(self, who: Person, number: int, trial: int | None) -> Times:
        """Return how much time each part of a trial's work, such as loading data, took.

        For a search without `trial`, the times are summed over all its trials.
        """
        experiment = await self._visible(who, number)
        return await asyncio.to_thread(read_times, self._store, experiment, trial, time.time())

    async def curves(self, who: Person, number: int, trial: int, points: int) -> Curves:
        """Return a trial's learning curves, one per metric, downsampled to at most `points` points each."""
        await self._visible(who, number)
        return await self._curves.curves(number, trial, points)

    async def logs(
        self,
        who: Person,
        number: int,
        trial: int,
        attempt: int | None,
        rank: int | None,
        offset: int = 0,
        tail: int | None = None,
    ) -> LogChunk:
        """Return a piece of a rank's log: from a byte offset on, or about its last `tail` bytes from a line start on.

        By default it is the log of the newest attempt, and of the rank that failed, else of rank 0.
        """
        self._retention.check(await self._visible(who, number), time.time())
        newest = await asyncio.to_thread(self._store.trial, number, trial)
        if newest.attempt == 0:
            return LogChunk(attempt=0, rank=rank or 0, text="", offset=0, size=0, ended=False)
        chosen = await asyncio.to_thread(self._store.attempt, AttemptId(number, trial, attempt or newest.attempt))
        speaker = rank if rank is not None else chosen.failure.rank if chosen.failure else 0
        return await self._engine.logs(chosen.id, speaker, offset, tail)

    async def source(self, who: Person, number: int) -> tuple[str, Snapshot]:
        """Return the source text of an experiment's training definition, and the description of its snapshot."""
        experiment = await self._visible(who, number)
        text = await asyncio.to_thread(self._archive.definition, experiment.snapshot)
        return text, await asyncio.to_thread(self._archive.snapshot, experiment.snapshot)

    async def environment(self, who: Person, number: int) -> EnvironmentInfo:
        """Return the environment recorded in an experiment's snapshot, with its lock file."""
        experiment = await self._visible(who, number)
        return await asyncio.to_thread(self._preparation.info, experiment.owner, experiment.snapshot)

    async def archive(self, who: Person, number: int) -> BinaryIO:
        """Return the open archive of an experiment's snapshot: training definition, project files and description."""
        experiment = await self._visible(who, number)
        return await asyncio.to_thread(self._archive.opened, experiment.snapshot)

    async def watch(self, who: Person, after: int, experiment: int | None) -> AsyncGenerator[str, None]:
        """Yield messages about experiments that the user may see, as JSON, without end.

        First come stored messages with numbers above `after`, then new ones. `experiment` selects those of one
        experiment.
        """
        if experiment is not None:
            await self._visible(who, experiment)
        reader, seen = NoteRedactor(self._store, who), {experiment: True}  # constant for the life of a watcher
        async with contextlib.aclosing(self._feed.frames(after, experiment)) as frames:
            async for frame in frames:
                if frame.experiment not in seen:
                    seen[frame.experiment] = await self._sees(who, frame.experiment)
                if seen[frame.experiment]:
                    yield await asyncio.to_thread(reader.note_message, frame.text) if frame.note else frame.text

    # Operations that change experiments

    async def label(self, who: Person, number: int, edit: LabelEdit) -> Overview:
        """Change an experiment's name, note or tags, whatever its state; they do not affect its training."""
        await changeable(self._store, who, number)

        def change(before: Experiment) -> tuple[dict[str, Any], AuditEntry | None]:
            changes = apply_edit(before, edit)
            entry = audit_entry(who, before, "label", edit_text(before, changes)) if changes else None
            return changes, entry

        await asyncio.to_thread(self._store.update_experiment, number, time.time(), change)
        self._bus.notify()
        return await self.overview(who, number)

    async def stop(self, who: Person, number: int) -> Overview:
        """Stop an experiment for good; its checkpoints remain. Idempotent."""
        return await self._change(who, number, e.Stop(), {ExperimentState.STOPPING, ExperimentState.STOPPED})

    async def pause(self, who: Person, number: int) -> Overview:
        """Pause an experiment: it commits a checkpoint and releases its slots until it is resumed."""
        return await self._change(who, number, e.Paused(), {ExperimentState.PAUSED})

    async def resume(self, who: Person, number: int, asked: Resumption) -> Overview:
        """Resume a paused experiment from its newest checkpoint, with another number of slots per gang if given.

        Raises Conflict if the slots are to change and the experiment is not paused, ImpossibleAsk if the gang could
        never run, and Forbidden for users who may no longer submit, or are no longer in its group. If the slots change,
        each trial that has begun gets a note on how that affects its result.
        """
        before = await changeable(self._store, who, number)
        may_continue(who, before)
        check_open(before.config, await self._loop.cluster_state.now(), self._engine)
        if asked.slots is None or asked.model_dump() == before.config.model_dump(include={"slots", "least_slots"}):
            return await self._change(who, number, e.Resumed(), {ExperimentState.ACTIVE})
        if before.state is ExperimentState.ACTIVE:
            raise Conflict(f"slots change only while experiment #{number} is paused: daylight pause {number}")
        config = before.config.model_copy(update=asked.model_dump())
        cluster = await self._loop.cluster_state.now()
        check_possible(cluster, config, before.owner, before.group)
        check_workers(config)
        refusal = await self._site_loads.refusal(pools_of(config, cluster)) if config.least_slots is not None else ""
        check_elastic(config, refusal)
        # Before the change, as another attempt may start at once; an elastic training is told when that starts.
        notes = await asyncio.to_thread(self._slots_notes, before, config) if config.least_slots is None else []
        await self._change(who, number, e.Resumed(), set(), config=config)
        for key, text in notes:
            await asyncio.to_thread(self._store.note, key, text, time.time())
        self._bus.notify()
        return await self.overview(who, number)

    def _slots_notes(self, before: Experiment, config: Config) -> list[tuple[AttemptId, str]]:
        """Return which attempts are to have a note that their trials go on with other slots, and its text."""
        notes = []
        for trial in self._store.trials(before.number):
            if trial.attempt:  # trials that have not begun are trained with the new slots alone
                key = AttemptId(trial.experiment, trial.index, trial.attempt)
                held = self._store.attempt(key).slots
                if held != config.slots:
                    notes.append((key, resumed_note(config, held, config.slots, checkpoint_step(trial.checkpoint))))
        return notes

    async def _change(
        self, who: Person, number: int, event: e.Event, already: set[ExperimentState], **changes: Any
    ) -> Overview:
        experiment = await changeable(self._store, who, number)
        verb = {"Stop": "stop", "Paused": "pause", "Resumed": "resume"}[type(event).__name__]
        if experiment.state not in already:
            now, entry = time.time(), audit_entry(who, experiment, verb)
            try:
                await asyncio.to_thread(self._store.advance_experiment, number, event, now, entry, **changes)
            except IllegalTransition:
                longer = f". daylight continue {number} --epochs N trains it longer" if verb == "resume" else ""
                raise Conflict(
                    f"experiment #{number} is {experiment.state}: there is nothing to {verb}{longer}"
                ) from None
            self._changed()
        return await self.overview(who, number)

    # Helpers

    def _changed(self) -> None:
        self._bus.notify()
        self._loop.wake()

    async def _visible(self, who: Person, number: int) -> Experiment:
        return await visible(self._store, who, number)

    async def _sees(self, who: Person, number: int) -> bool:
        with contextlib.suppress(NotFound):
            return (await self._visible(who, number)).number == number
        return False

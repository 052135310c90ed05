"""Implement the operations that users, views and launchers call through the HTTP API."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from kernel_backend.confined import Confined
from kernel_backend.engines.probing.callers import CallingProbes
from kernel_backend.errors import Conflict, Fenced, NotFound, Unauthenticated
from kernel_backend.model import events as e
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.diff import Rerun
from kernel_backend.model.environments import EnvironmentInfo
from kernel_backend.model.experiment import Config, Experiment, Submission
from kernel_backend.model.facts import StoredFact
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.labels import LabelEdit, apply_edit, edit_text
from kernel_backend.model.launch.launch_spec import token_digest
from kernel_backend.model.reports import Delivery, Instruction, Kind, Report, StoredReport
from kernel_backend.model.search import registry
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.states import EXPERIMENT_ENDED, ExperimentState, IllegalTransition, TrialState
from kernel_backend.model.times import Times
from kernel_backend.model.trial import checkpoint_step
from kernel_backend.model.views.curves import Curves
from kernel_backend.model.views.overview import LogChunk, Overview
from kernel_backend.model.views.search_status import SearchStatus
from kernel_backend.model.webhooks.records import EndedExperiments
from kernel_backend.service.access import changeable, check_not_deleted, may_submit, visible
from kernel_backend.service.admission import check_elastic, check_possible, check_workers
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
from kernel_backend.service.rerun import (
    as_requested_by,
    choose_checkpoint,
    continuation,
    rerun_submission,
    single_trial,
)
from kernel_backend.service.retention import Retention
from kernel_backend.service.state.requests import pools_of
from kernel_backend.service.storage_limits import StorageLimits
from kernel_backend.service.submission import SubmissionValidator
from kernel_backend.service.verbs.artifacts import ArtifactVerbs
from kernel_backend.service.verbs.checkpoints import CheckpointVerbs
from kernel_backend.service.verbs.cluster import ClusterVerbs
from kernel_backend.service.verbs.compare import CompareVerbs
from kernel_backend.service.verbs.move import MoveVerbs
from kernel_backend.service.verbs.node_environments import NodeEnvironments
from kernel_backend.service.verbs.pools import PoolVerbs
from kernel_backend.service.verbs.quotas import QuotaVerbs
from kernel_backend.service.verbs.search import SearchVerbs
from kernel_backend.service.verbs.staging import Staging
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
from kernel_backend.store.base import NewExperiment, StoreUnavailable

_log = logging.getLogger(__name__)

EVERY = 2**31 - 1  # all trials of a search


class Service:
    """Operations behind the HTTP API.

    An operation changes the store and wakes the loop; only the loop starts and ends gangs.
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
        self._curves = CurveReader(store)
        self._confined = Confined()
        self._duplicates, self._submitting = DuplicateFinder(store, archive, self._confined), asyncio.Lock()
        self._retention = Retention(context)
        self.checkpoints = CheckpointVerbs(store, storage, self._retention)
        self.artifacts = ArtifactVerbs(store, workspaces)
        self.compare = CompareVerbs(store, archive, storage, self._confined)
        self.numbering = Numbering(store, storage, workspaces, context.home)
        self._feed = WatcherFeed(store, self._bus)
        self._overviews = Overviews(store, archive, loop.cluster_state, loop.searches.notice)
        self.search = SearchVerbs(store, loop, self._changed)
        self.disk = DiskMeter(context)
        self._storage = StorageLimits(self.disk, self.stored_quotas)
        self._validator = SubmissionValidator(
            context, loop.cluster_state, preparation, self.checkpoints, self._confined, self._storage
        )
        self.moves = MoveVerbs(context, loop.cluster_state, self._validator.python_in_pools, self._changed)
        self.quotas = QuotaVerbs(store, self.stored_quotas, loop.cluster_state.looking, self._changed)
        self.idle = IdleReview(context, loop.cluster_state, self._changed)
        self.cluster = ClusterVerbs(context, loop.cluster_state, self.overview, self._changed, lambda: self.idle.idle)
        self.probes = CallingProbes()
        self.pools = PoolVerbs(store, engine, loop.cluster_state, context, self._changed, self.probes)
        self.monitoring = Monitoring(store, loop.cluster_state, self.pools.statuses, loop.round_age)
        self.utilisation = UtilisationReader(store)
        self.spending = SpendingReader(store, engine, context.local_price)
        self.gang_nodes = GangNodes(store, engine.settings, self._bus, context.wake, context.nodes.blame)
        self.staging = Staging(store, archive, context.home, context.bus)
        self.node_environments = NodeEnvironments(store, preparation.recorded, self.staging.open, context.home)
        self.deletion = Deletion(context)
        self._outbox = OutboxSender(store, context.bus, context.outbox)
        self.webhooks = WebhookVerbs(context, self._outbox)
        self.traces = TraceVerbs(store, self.overview, self._changed)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the background tasks; the loop's first round adopts running gangs and requeues lost ones."""
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
        """End the background tasks and close the store. Gangs keep running: the next service adopts them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._confined.close()
        await asyncio.to_thread(self._store.close)

    async def busy(self) -> bool:
        """Return whether any unpaused experiment runs, waits or is ending, or a webhook has not got its notices.

        True while the database cannot tell.
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

    # Submissions

    async def has_snapshot(self, id: str) -> bool:
        """Return whether the archive holds this snapshot."""
        return await asyncio.to_thread(self._archive.spare, id)

    async def put_snapshot(self, who: Person, id: str, data: bytes) -> None:
        """Store `data`, the archive of a snapshot; raises InvalidRequest unless `id` is its sha256.

        Raises Forbidden if the user may not submit.
        """
        may_submit(who)
        await asyncio.to_thread(self._archive.put, id, data)

    async def submit_once(self, who: Person, submission: Submission) -> tuple[Overview, bool]:
        """Queue a new experiment, unless it duplicates an active one; return its overview, and True if it is new.

        Raises NotFound for an unknown snapshot, InvalidDefinition for an error in the notebook cell or a
        hyperparameter, and ImpossibleAsk for a submission that can never run. After an error nothing is stored.
        """
        draft = await self._validator.draft(who, submission)
        if submission.again or submission.rerun_of is not None:
            return await self._add(who, draft), True
        await self._duplicates.learn(draft)
        await asyncio.to_thread(self.numbering.beyond, draft.owner)  # cached: the folders may be slow to read
        async with self._submitting:  # if two equal submissions arrive at once, the second finds the first
            twin = await asyncio.to_thread(self._duplicates.find, draft)
            if twin is None:
                return await self._add(who, draft), True
        return await self.overview(who, twin), False

    async def _add(self, who: Person, draft: NewExperiment) -> Overview:
        beyond = await asyncio.to_thread(self.numbering.beyond, draft.owner)
        experiment, _ = await asyncio.to_thread(self._store.add_experiment, draft, time.time(), beyond)
        await asyncio.to_thread(self._preparation.keep, draft.owner, draft.snapshot, draft.python)
        self._changed()
        overview = await self.overview(who, experiment.number)
        warnings = await self._storage.warnings(draft.owner, draft.group)
        return overview.model_copy(update={"warnings": (*overview.warnings, *warnings)})

    async def rerun(self, who: Person, number: int, asked: Rerun) -> Overview:
        """Queue a new experiment with the snapshot and seeds of an earlier one.

        If `asked.trial` is set, only that trial of a search is run. If `asked.checkpoint` is set, training continues
        from that checkpoint. Raises NotFound, InvalidRequest for an unknown option or if the trial has already reached
        the given length, and the errors of `submit_once`.
        """
        before = await self._before(who, number, asked)
        if asked.checkpoint is not None:
            trial = await asyncio.to_thread(self._store.trial, number, asked.trial or 1)
            found = choose_checkpoint(before, asked, await self.checkpoints.listed(who, number))
            submission = continuation(before, trial, asked, found)
            return await self._add(who, await self._validator.draft(who, submission, f"{trial.id}/{found.id}"))
        if asked.trial is None:
            return await self._add(
                who, await self._validator.draft(who, rerun_submission(before, asked), before.begins_from)
            )
        trial = await asyncio.to_thread(self._store.trial, number, asked.trial)
        return await self._add(
            who, await self._validator.draft(who, single_trial(before, trial, asked), trial.begins_from)
        )

    async def verify(self, who: Person, number: int, asked: Rerun) -> Overview:
        """Queue a new experiment that repeats the steps between the first two checkpoints of an earlier one.

        With a single checkpoint, the steps from the start to it are repeated. `compare.diff` then shows whether the
        results are bit-identical. Raises NotFound if there is no checkpoint, and the errors of `rerun`.
        """
        before = await self._before(who, number, asked)
        kept = sorted(await self.checkpoints.listed(who, number), key=lambda each: each.order)
        first = [each for each in kept if each.trial == 1][:2]
        if not first:
            yet = "" if before.state in EXPERIMENT_ENDED else " yet"
            raise NotFound(f"experiment #{number} has no checkpoint{yet} to compare with")
        begins_from = f"{number}.1/{first[0].id}" if len(first) > 1 else None
        name = asked.name or f"verification of #{number}"
        until = {**asked.config, "until": first[-1].step}
        params = {**(await asyncio.to_thread(self._store.trial, number, 1)).params, **asked.params}
        submission = rerun_submission(
            before, asked.model_copy(update={"name": name, "config": until, "params": params})
        )
        return await self._add(who, await self._validator.draft(who, submission, begins_from))

    async def _before(self, who: Person, number: int, asked: Rerun) -> Experiment:
        """Return the experiment to rerun as the user may run it; raises NotFound, Conflict, Forbidden."""
        before = await self._visible(who, number)
        check_not_deleted(before)
        may_submit(who)
        return as_requested_by(who, before, asked)

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
    ) -> list[Overview]:
        """Return the newest `limit` experiments of the user, or of `owner` or `group` as far as the user may see them.

        They are ordered newest first. An empty `group` selects all experiments that the user may see; `tags` selects
        those that have all of these tags.
        """
        mine = who.name if owner is None and group is None else owner
        known = await asyncio.to_thread(self._store.overviews, mine, state, search, limit, group or None, who, tags)
        return await self._overviews.complete(who, known)

    async def ended(self, who: Person, since: float) -> EndedExperiments:
        """Return the user's own experiments that ended after `since`, and whether others have not ended."""
        return await asyncio.to_thread(read_ended, self._store, who.name, since, time.time())

    async def reports(
        self, who: Person, number: int, trial: int, kind: Kind | None, after: int, limit: int | None
    ) -> list[StoredReport]:
        """Return at most `limit` reports of a trial above number `after`, in the order of storage.

        `kind` selects reports of one kind; None selects all.
        """
        await self._visible(who, number)
        return await asyncio.to_thread(self._store.reports, number, trial, kind, after, limit)

    async def export(self, who: Person, number: int, trial: int | None) -> SearchStatus | Sequence[StoredReport]:
        """Return the reports of a trial, by default the first.

        For a search without `trial`, the status with all its trials.
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
        """Return the time that each part of a trial's work took.

        For a search without `trial`, summed over all its trials.
        """
        experiment = await self._visible(who, number)
        return await asyncio.to_thread(read_times, self._store, experiment, trial, time.time())

    async def curves(self, who: Person, number: int, trial: int, points: int) -> Curves:
        """Return a trial's curves, of at most `points` points each."""
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
        """Return a piece of a rank's log, from a byte offset or about its last `tail` bytes, from the start of a line.

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

    async def archive(self, who: Person, number: int) -> bytes:
        """Return an experiment's snapshot as an archive: training definition, project files and description."""
        experiment = await self._visible(who, number)
        return await asyncio.to_thread(self._archive.get, experiment.snapshot)

    async def watch(self, who: Person, after: int, experiment: int | None) -> AsyncGenerator[str, None]:
        """Yield messages about experiments that the user may see, as JSON.

        First come those above number `after`, then new ones, without end. `experiment` selects those of one experiment.
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
        """Change an experiment's name, note or tags, which do not affect training, in any state."""
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

        Raises Conflict if the slots differ and the experiment is not paused, ImpossibleAsk if the gang could never run,
        and Forbidden for users who may no longer submit. If the slots change, each trial that has begun gets a note on
        how that affects its result.
        """
        before = await changeable(self._store, who, number)
        may_submit(who)
        if asked.slots is None or asked.model_dump() == before.config.model_dump(include={"slots", "least_slots"}):
            return await self._change(who, number, e.Resumed(), {ExperimentState.ACTIVE})
        if before.state is ExperimentState.ACTIVE:
            raise Conflict(f"slots change only while experiment #{number} is paused: daylight pause {number}")
        config = before.config.model_copy(update=asked.model_dump())
        cluster = await self._loop.cluster_state.now()
        check_possible(cluster, config, before.owner, before.group)
        check_workers(config)
        check_elastic(config, all(self._engine.places(pool) for pool in pools_of(config, cluster)))
        await self._change(who, number, e.Resumed(), set(), config=config)
        if config.least_slots is None:  # else a note says so when its next attempt starts
            await asyncio.to_thread(self._note_slots, before, config)
        self._bus.notify()
        return await self.overview(who, number)

    def _note_slots(self, before: Experiment, config: Config) -> None:
        for trial in self._store.trials(before.number):
            if trial.attempt:  # trials that have not begun are trained with the new slots alone
                key = AttemptId(trial.experiment, trial.index, trial.attempt)
                held = self._store.attempt(key).slots
                if held != config.slots:
                    text = resumed_note(config, held, config.slots, checkpoint_step(trial.checkpoint))
                    self._store.note(key, text, time.time())

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

    # Called by launchers

    async def check_attempt(self, key: AttemptId, token: str) -> None:
        """Raise Unauthenticated unless the token was issued for this attempt."""
        try:
            known = await asyncio.to_thread(self._store.token_digest, key)
        except NotFound:
            raise Unauthenticated("this token is no attempt's") from None
        if not hmac.compare_digest(known, token_digest(token)):
            raise Unauthenticated("this token is no attempt's")

    async def deliver(self, key: AttemptId, token: str, delivery: Delivery) -> Instruction:
        """Store records that an attempt sends; return how many were accepted, and an instruction for its ranks.

        Raises Unauthenticated for a wrong token. If there is a newer attempt, records up to the step from which it
        resumed are stored, and Fenced is raised.
        """
        await self.check_attempt(key, token)
        accepted = 0
        if delivery.records:
            accepted = await asyncio.to_thread(self._store.accept, key, delivery.records, time.time())
            if any(isinstance(record, Report) and record.kind == "validation" for record in delivery.records):
                await self._decide(key.experiment)
            self._bus.notify()
        await asyncio.to_thread(self._store.keep_measured, key, delivery, time.time())
        for text in delivery.notes:
            await asyncio.to_thread(self._store.note, key, text, time.time())
            self._bus.notify()
        trial = await asyncio.to_thread(self._store.trial, key.experiment, key.trial)
        if trial.attempt != key.number:
            raise Fenced(f"attempt {key} was followed by attempt {trial.attempt}: exit", accepted=accepted)
        instruct = {TrialState.RELEASING: "release", TrialState.STOPPING: "stop"}.get(trial.state, "continue")
        trace = await self.traces.pending(key)
        return Instruction.model_validate(
            {"accepted": accepted, "instruct": instruct, "until": trial.until, "trace": trace}
        )

    async def _decide(self, number: int) -> None:
        """Let a search process a validation report at once, since the ranks of that trial may wait for its decision."""
        experiment = await asyncio.to_thread(self._store.experiment, number)
        if experiment.config.search is not None and await asyncio.to_thread(self._loop.searches.take_news, experiment):
            self._loop.wake()

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

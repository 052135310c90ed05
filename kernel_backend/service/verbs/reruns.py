"""Queue new experiments that repeat or continue earlier ones."""

from __future__ import annotations

import asyncio

from kernel_backend.errors import NotFound
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.diff import Rerun
from kernel_backend.model.experiment import Experiment, Submission
from kernel_backend.model.states import EXPERIMENT_ENDED
from kernel_backend.model.views.overview import Overview
from kernel_backend.service.access import check_not_deleted, may_submit, visible
from kernel_backend.service.rerun import (
    as_requested_by,
    choose_checkpoint,
    continuation,
    rerun_submission,
    single_trial,
)
from kernel_backend.service.verbs.checkpoints import CheckpointVerbs
from kernel_backend.service.verbs.submission_validator import SubmissionValidator
from kernel_backend.service.verbs.submissions import SubmissionVerbs
from kernel_backend.store.base import Store


class RerunVerbs:
    """Operations that queue an earlier experiment again: to repeat it, to continue it, or to verify its result."""

    def __init__(
        self,
        store: Store,
        checkpoints: CheckpointVerbs,
        validator: SubmissionValidator,
        submissions: SubmissionVerbs,
    ) -> None:
        self._store, self._checkpoints, self._validator = store, checkpoints, validator
        self._submissions = submissions

    async def rerun(self, who: Person, number: int, asked: Rerun, request: str | None = None) -> Overview:
        """Queue a new experiment with the snapshot and seeds of an earlier one; return its overview.

        If `asked.trial` is set, only that trial of a search is run. If `asked.checkpoint` is set, training continues
        from that checkpoint. Raises NotFound, InvalidRequest for an unknown option or if the trial has already reached
        the given length, and the errors of `submit_once`. A `request` that is repeated makes no second experiment.
        """
        if (made := await self._submissions.made_by(who, request)) is not None:
            return made
        before = await self._before(who, number, asked)
        if asked.checkpoint is not None:
            trial = await asyncio.to_thread(self._store.trial, number, asked.trial or 1)
            found = choose_checkpoint(before, asked, await self._checkpoints.listed(who, number))
            submission = continuation(before, trial, asked, found)
            return await self._add(who, submission, f"{trial.id}/{found.id}", request)
        if asked.trial is None:
            return await self._add(who, rerun_submission(before, asked), before.begins_from, request)
        trial = await asyncio.to_thread(self._store.trial, number, asked.trial)
        return await self._add(who, single_trial(before, trial, asked), trial.begins_from, request)

    async def verify(self, who: Person, number: int, asked: Rerun, request: str | None = None) -> Overview:
        """Queue a new experiment that repeats the steps between the first two checkpoints of an earlier one.

        If there is a single checkpoint, the steps from the start to it are repeated. A comparison (`CompareVerbs.diff`)
        then shows whether the results are bit-identical. Raises NotFound if there is no checkpoint, and the errors of
        `rerun`. A `request` that is repeated makes no second experiment.
        """
        if (made := await self._submissions.made_by(who, request)) is not None:
            return made
        before = await self._before(who, number, asked)
        kept = sorted(await self._checkpoints.listed(who, number), key=lambda each: each.order)
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
        return await self._add(who, submission, begins_from, request)

    async def _add(self, who: Person, submission: Submission, begins_from: str | None, request: str | None) -> Overview:
        draft = await self._validator.draft(who, submission, begins_from)
        return await self._submissions.add(who, draft.model_copy(update={"request": request}))

    async def _before(self, who: Person, number: int, asked: Rerun) -> Experiment:
        """Return the experiment to rerun, changed so that this user may run it (see `as_requested_by`).

        Raises NotFound, Conflict for a deleted experiment, and Forbidden.
        """
        before = await visible(self._store, who, number)
        check_not_deleted(before)
        may_submit(who)
        return as_requested_by(who, before, asked)

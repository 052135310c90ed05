"""Store snapshots, and queue new experiments."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from kernel_backend.fairness.owner_limit import OwnerLimit
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import Submission
from kernel_backend.model.views.overview import Overview
from kernel_backend.service.access import may_submit
from kernel_backend.service.context import Context
from kernel_backend.service.duplicates import DuplicateFinder
from kernel_backend.service.environments import Preparation
from kernel_backend.service.numbering import Numbering
from kernel_backend.service.verbs.submission_validator import SubmissionValidator
from kernel_backend.store.base import NewExperiment

UNPACKED_AT_ONCE = 2  # archives, which take a thread and a core for seconds to be checked


class SubmissionVerbs:
    """Operations that store snapshots and queue experiments."""

    def __init__(
        self,
        context: Context,
        validator: SubmissionValidator,
        duplicates: DuplicateFinder,
        preparation: Preparation,
        numbering: Numbering,
        overview: Callable[[Person, int], Awaitable[Overview]],
        changed: Callable[[], None],
    ) -> None:
        self._store, self._archive = context.store, context.archive
        self._validator, self._duplicates, self._preparation = validator, duplicates, preparation
        self._numbering, self._overview, self._changed = numbering, overview, changed
        self._submitting, self._unpacking = asyncio.Lock(), OwnerLimit(UNPACKED_AT_ONCE, 1)

    async def has_snapshot(self, id: str) -> bool:
        """Return whether the archive holds this snapshot."""
        return await asyncio.to_thread(self._archive.spare, id)

    async def put_snapshot(self, who: Person, id: str, data: bytes) -> None:
        """Store `data`, the archive of a snapshot; raises InvalidRequest unless `id` is its sha256.

        Raises Forbidden if the user may not submit, or it exceeds the user's storage limit.
        """
        may_submit(who)
        if not await asyncio.to_thread(self._archive.has, id):
            async with self._unpacking.of(who.name), self._validator.storing(who.name, len(data)):
                await asyncio.to_thread(self._archive.put, id, data, who.name)

    async def made_by(self, who: Person, request: str | None) -> Overview | None:
        """Return the overview of the experiment that a request of the user has made before; None if it has made none.

        `request` is the id that the user's client has given to it. A client repeats a request whose answer was lost.
        """
        if request is None or (number := await asyncio.to_thread(self._store.made_by, who.name, request)) is None:
            return None
        return await self._overview(who, number)

    async def submit_once(
        self, who: Person, submission: Submission, request: str | None = None
    ) -> tuple[Overview, bool]:
        """Queue a new experiment, unless an identical one is unfinished; return its overview, and True if it is new.

        A `request` that is repeated has the same result as before.

        Raises NotFound for an unknown snapshot, InvalidDefinition for an error in the notebook cell or a
        hyperparameter, and ImpossibleAsk for a submission that can never run. After an error nothing is stored.
        """
        if (made := await self.made_by(who, request)) is not None:
            return made, True
        draft = (await self._validator.draft(who, submission)).model_copy(update={"request": request})
        if submission.again or submission.rerun_of is not None:
            return await self.add(who, draft), True
        await self._duplicates.learn(draft)
        await asyncio.to_thread(self._numbering.beyond, draft.owner)  # cached: the folders may be slow to read
        async with self._submitting:  # if two equal submissions arrive at once, the second finds the first
            if (made := await self.made_by(who, request)) is not None:  # both are the same request
                return made, True
            twin = await asyncio.to_thread(self._duplicates.find, draft)
            if twin is None:
                return await self.add(who, draft), True
        return await self._overview(who, twin), False

    async def add(self, who: Person, draft: NewExperiment) -> Overview:
        """Store a validated experiment, which the control loop then starts; return its overview."""
        beyond = await asyncio.to_thread(self._numbering.beyond, draft.owner)
        experiment, _ = await asyncio.to_thread(self._store.add_experiment, draft, time.time(), beyond)
        await asyncio.to_thread(self._archive.used, draft.snapshot)
        await asyncio.to_thread(self._preparation.keep, draft.owner, draft.snapshot, draft.python)
        self._changed()
        overview = await self._overview(who, experiment.number)
        warnings = await self._validator.warnings(draft)
        return overview.model_copy(update={"warnings": (*overview.warnings, *warnings)})

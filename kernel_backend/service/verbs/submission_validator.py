"""Validate submissions: parse the notebook cell, bind hyperparameters to it, and refuse what could never run."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from kernel_backend.confined import Confined
from kernel_backend.definition.code import is_code
from kernel_backend.definition.script.modules import is_module
from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.ids import Reference, parse_source
from kernel_backend.model.labels import edited_tags
from kernel_backend.model.snapshot import DEFINITION
from kernel_backend.model.trial import MODEL, WEIGHTS, Beginning, parse_beginning
from kernel_backend.service import warm_start
from kernel_backend.service.access import changeable, check_not_deleted, may_submit, visible
from kernel_backend.service.admission import (
    check_elastic,
    check_here,
    check_keeping,
    check_open,
    check_possible,
    check_searcher,
    check_size,
    check_staging,
    check_workers,
    group_of,
)
from kernel_backend.service.context import Context
from kernel_backend.service.environments import Preparation
from kernel_backend.service.parsing import accepted
from kernel_backend.service.run_name import AGAIN, LOOKED_AT, NEW_CODE, base_name, changes, named, previous_run
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.service.state.requests import pools_of
from kernel_backend.service.storage_limits import StorageLimits
from kernel_backend.service.verbs.checkpoints import CheckpointVerbs
from kernel_backend.service.verbs.register import ModelVerbs
from kernel_backend.snapshots.archive import UNREADABLE
from kernel_backend.spec.config_text import check_bounds
from kernel_backend.spec.search_rules import check_search
from kernel_backend.store.base import NewExperiment


class SubmissionValidator:
    """Validator of submissions; it stores no experiment, but pins the checkpoints from which trials start."""

    def __init__(
        self,
        context: Context,
        cluster_state: ClusterStateManager,
        preparation: Preparation,
        checkpoints: CheckpointVerbs,
        models: ModelVerbs,
        confined: Confined,
        storage: StorageLimits,
    ) -> None:
        self._store, self._archive, self._engine = context.store, context.archive, context.engines
        self._workspaces, self._stored_quotas = context.workspaces, context.stored_quotas
        self._cluster_state, self._preparation = cluster_state, preparation
        self._root, self._context = context.checkpoint_storage.root, context
        self._site_loads = context.site_loads
        self._checkpoints, self._models, self._confined, self._storage = checkpoints, models, confined, storage

    async def draft(self, who: Person, submission: Submission, begins_from: str | None = None) -> NewExperiment:
        """Validate a submission, and return the new experiment that is to be stored.

        If `begins_from` is set, its trials start from that checkpoint. Raises NotFound for an unknown snapshot,
        InvalidDefinition for an error in the notebook cell or a hyperparameter, ImpossibleAsk for a submission that can
        never run, and Forbidden.
        """
        may_submit(who)
        check_size(submission)
        submission, begins_from = await self._from_model(who, self._in_default_pool(submission), begins_from)
        check_bounds(submission.config)
        if submission.rerun_of is not None:
            await visible(self._store, who, submission.rerun_of)
        group = group_of(who, submission.config, {name for kind, name in self._stored_quotas.people if kind == "group"})
        if not await asyncio.to_thread(self._archive.has, submission.snapshot):
            raise NotFound(f"snapshot {submission.snapshot[:12]} is not stored: upload it first")
        size = await asyncio.to_thread(self._source_bytes, submission)
        accept = self._confined.call(who.name, accepted, self._archive.root, submission, size=size)
        (params, space), program = await accept
        check_search(submission.config, space)
        if submission.config.search is not None:
            check_searcher(submission.config.search, space)
        await asyncio.to_thread(self._workspaces.check, who.name)
        others = await asyncio.to_thread(self._store.snapshot_users, submission.snapshot, 0)
        size = 0 if others else await asyncio.to_thread(self._archive.bytes, submission.snapshot)
        await self._storage.check(who.name, group, size)
        if submission.config.env == "locked":
            await asyncio.to_thread(self._preparation.check, who.name, submission.snapshot)
        for number in warm_start.named(submission.config.search):
            check_not_deleted(await visible(self._store, who, number))
            await asyncio.to_thread(warm_start.check, self._store, number, submission.config, space)
        nodes = await self._engine.nodes()
        python = await self.python_in_pools(who.name, group, submission.config, submission.snapshot, submission.python)
        check_workers(submission.config)
        threads = submission.config.threads or min(node.threads_per_slot for node in nodes)
        draft = NewExperiment(
            name=submission.name or "",
            owner=who.name,
            group=group,
            snapshot=submission.snapshot,
            config=submission.config.model_copy(update={"threads": threads}),
            params=params,
            space=space,
            python=python,
            cwd=submission.cwd,
            notebook=submission.notebook,
            rerun_of=submission.rerun_of,
            begins_from=await self._beginning(who, submission.config, begins_from),
            note=submission.note.strip(),
            tags=edited_tags((), submission.tags),
        )
        return draft if draft.name else await asyncio.to_thread(self._named, draft, program)

    def _named(self, draft: NewExperiment, program: str) -> NewExperiment:
        """Return an experiment that its user has not named with a name: what differs from the run before it."""
        named_alike = draft.model_copy(update={"name": base_name(program, draft.notebook)})
        before = previous_run(draft, self._store.experiments_before(named_alike, LOOKED_AT))
        if before is None:
            return named_alike
        changed = changes(before, draft) or [AGAIN if self._same_code(before.snapshot, draft.snapshot) else NEW_CODE]
        return draft.model_copy(update={"name": named(named_alike.name, changed)})

    def _same_code(self, one: str, other: str) -> bool:
        try:
            return one == other or dict(self._archive.files(one, is_code)) == dict(self._archive.files(other, is_code))
        except UNREADABLE:  # the earlier one's snapshot may be missing or damaged
            return False

    def storing(self, owner: str, size: int) -> AbstractAsyncContextManager[None]:
        """Return a context that stores a snapshot; entering it raises Forbidden beyond the owner's storage limit."""
        return self._storage.storing(owner, size)

    async def warnings(self, draft: NewExperiment) -> tuple[str, ...]:
        """Return warnings that the storage quota of a new experiment's owner, or of the group, is nearly used up."""
        return await self._storage.warnings(draft.owner, draft.group)

    def _in_default_pool(self, submission: Submission) -> Submission:
        """Return the submission with the default pool that an admin has set, unless it names a pool itself.

        Raises InvalidRequest if the default pool does not exist.
        """
        if submission.config.pool is not None or not self._context.default_pool:
            return submission
        if problem := self._context.default_pool_problem:
            where = f"default_pool in {self._context.configured_in}"
            raise InvalidRequest(f"{where}: {problem}; name a pool by --pool, or tell an admin")
        config = submission.config.model_copy(update={"pool": self._context.default_pool})
        return submission.model_copy(update={"config": config})

    async def python_in_pools(self, owner: str, group: str, config: Config, snapshot: str, python: str) -> str:
        """Return the interpreter with which an experiment trains in its pools; `python` is that of the submission.

        Raises ImpossibleAsk, InvalidRequest, Conflict or NoEnvironment if the experiment cannot train in the pools.
        """
        cluster = await self._cluster_state.now()
        check_open(config, cluster, self._engine)
        check_possible(cluster, config, owner, group)
        pools = pools_of(config, cluster)
        settings = {pool: self._engine.settings(pool) for pool in pools}
        if self._workspaces.closed:
            check_here(config, settings)
        for pool in pools:
            check_staging(pool, settings[pool], self._root)
        check_elastic(config, await self._site_loads.refusal(pools) if config.least_slots is not None else "")
        keeping = [pool for pool in pools if pool in self._engine.keeping()]
        check_keeping(config, pools[0], settings[pools[0]], bool(keeping))
        # On this machine the interpreter must exist; other pools may name their own, which replaces it there.
        here = next((pool for pool in pools if settings[pool] is None), pools[0])
        find = self._preparation.interpreter
        return await asyncio.to_thread(find, owner, snapshot, python, here, config.env == "locked")

    def _source_bytes(self, submission: Submission) -> int:
        """Return how many bytes of Python source must be parsed to validate the submission, in all files together."""
        search = submission.config.search
        own = search.source if search is not None and search.source is not None else ""
        archived = self._archive.size(submission.snapshot, lambda name: name == DEFINITION or is_module(name))
        return len(own.encode()) + archived

    async def _from_model(
        self, who: Person, submission: Submission, before: str | None
    ) -> tuple[Submission, str | None]:
        """Replace a model that `--from` names by the trial of its version, and `before` by the version's weights.

        `before` stays if it is a checkpoint to continue from. Raises NotFound for an unknown model.
        """
        source = submission.config.weights_from
        if source is None or source[0].isdecimal():
            return submission, before
        if submission.config.follows:
            raise InvalidRequest(
                f"{source} is one checkpoint: name an experiment or a trial, whose checkpoints these are"
            )
        version = await self._models.version(who, source)
        trial = f"{version.experiment}.{version.trial}"
        config = submission.config.model_copy(update={"weights_from": trial})
        changed = submission.model_copy(update={"config": config})
        if _continues(before):
            return changed, before
        return changed, str(Beginning(trial, version.checkpoint, _part(config)))

    async def _beginning(self, who: Person, config: Config, before: str | None) -> str | None:
        """Return the checkpoint from which trials start; None if they start with new weights.

        `before` is the checkpoint that a rerun or continuation starts from, if any. If `--from` or `--warm` names a
        trial, the result is the best checkpoint of that trial, or that of the named step, of which only the weights are
        used. It is pinned, so that all trials of a search start from the same weights. But `before` is returned if it
        is a checkpoint to continue from, or belongs to the named trial.
        """
        source = warm_start.weights(config)
        if source is None or source.trial is None or _continues(before):
            return before
        other = await (changeable if config.follows else visible)(self._store, who, source.experiment)
        check_not_deleted(other)
        if other.config.uses_model:
            used = other.config.weights_from
            raise InvalidRequest(f"#{other.number} has no model of its own: it uses that of {used}")
        named = parse_source(config.weights_from) if config.weights_from else None
        if config.follows:
            if named is None or named.step is not None:
                raise InvalidRequest("an evaluation of checkpoints is of an experiment or a trial, and names no step")
            if isinstance(named.subject, Reference) and named.subject.trial is not None:
                await asyncio.to_thread(self._store.trial, source.experiment, source.trial)
            return None
        if other.config.search is not None and named is not None and named.subject == Reference(source.experiment):
            raise InvalidRequest(f"--from {source.experiment}: it is a search: name a trial of it, {other.number}.1")
        owner = f"{source.experiment}.{source.trial}"
        if before is not None and before.startswith(f"{owner}/"):
            return before
        step = None if named is None else named.step
        id = await self._checkpoints.at(who, source.experiment, source.trial, step)
        await self._checkpoints.pin(who, source.experiment, source.trial, id, pinned=True)
        return str(Beginning(owner, id, _part(config)))


def _continues(begins_from: str | None) -> bool:
    """Return whether training goes on from a checkpoint, and does not begin at step 0 with its model."""
    return begins_from is not None and not parse_beginning(begins_from).part


def _part(config: Config) -> str:
    return MODEL if config.uses_model else WEIGHTS

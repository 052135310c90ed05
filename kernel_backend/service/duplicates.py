"""Detect duplicate submissions: find the active experiment that a submission repeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from kernel_backend.confined import Confined
from kernel_backend.definition.code import is_code
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.states import ExperimentState
from kernel_backend.service.parsing import meaning
from kernel_backend.snapshots.archive import UNREADABLE, Archive
from kernel_backend.store.base import NewExperiment, Store

_REMEMBERED = 1024  # snapshots
_ASKED = ("owner", "params", "space", "cwd", "python")
_log = logging.getLogger(__name__)
_GOING_ON = (ExperimentState.ACTIVE, ExperimentState.PAUSED)


def alike(experiment: Experiment, draft: NewExperiment) -> bool:
    """Return whether an unfinished experiment has the same owner, parameters, space, folder and interpreter.

    Name, code and configuration are not compared.
    """
    asked = all(getattr(experiment, field) == getattr(draft, field) for field in _ASKED)
    return asked and experiment.state in _GOING_ON


class DuplicateFinder:
    """Finder of duplicates; the meaning of a snapshot is computed once, for an archive never changes."""

    def __init__(self, store: Store, archive: Archive, confined: Confined) -> None:
        self._store, self._archive, self._confined = store, archive, confined
        self._known: dict[str, str] = {}  # what a snapshot means, by its id

    async def learn(self, draft: NewExperiment, unfinished: Iterable[Experiment]) -> None:
        """Compute the meaning of the snapshots that `find` will compare; one that cannot be read equals no other."""
        others = {each.snapshot for each in unfinished if alike(each, draft)} - {draft.snapshot}
        for id in sorted(others | {draft.snapshot}) if others else ():
            if id not in self._known:
                try:
                    size = await asyncio.to_thread(self._archive.size, id, is_code)
                    found = await self._confined.call(draft.owner, meaning, self._archive.root, id, size=size)
                except InvalidRequest:  # too large to be read, the next time too
                    found = id
                except UNREADABLE as error:  # gone or damaged: an older experiment's, and no fault of this one
                    _log.warning("snapshot %s is like no other: %s", id[:12], error)
                    continue
                while len(self._known) >= _REMEMBERED:
                    del self._known[next(iter(self._known))]
                self._known[id] = found

    def find(self, draft: NewExperiment, unfinished: Iterable[Experiment]) -> int | None:
        """Return the number of the newest of these experiments that `draft` duplicates; None where there is none."""
        for experiment in sorted(unfinished, key=lambda each: each.number, reverse=True):
            same = alike(experiment, draft) and self._same(experiment.snapshot, draft.snapshot)
            if same and draft.config in (experiment.config, self._submitted(experiment)):
                return experiment.number
        return None

    def _submitted(self, experiment: Experiment) -> Config:
        """Return the configuration that it was submitted with: priority and slots may have been changed since."""
        first = self._store.messages(0, experiment.number, limit=1)
        return Experiment.model_validate(first[0].data).config if first else experiment.config

    def _same(self, one: str, other: str) -> bool:
        return one == other or self._known.get(one, one) == self._known.get(other, other)

"""Detect duplicate submissions: find an unfinished experiment with the same code, parameters and configuration."""

from __future__ import annotations

import asyncio
import logging

from kernel_backend.confined import Confined
from kernel_backend.definition.code import is_code
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.service.parsing import meaning
from kernel_backend.snapshots.archive import UNREADABLE, Archive
from kernel_backend.store.base import NewExperiment, Store

_REMEMBERED = 1024  # snapshots in the cache
_CHANGEABLE = ("priority", "slots", "search")  # settings that users may change after the submission
_log = logging.getLogger(__name__)


class DuplicateFinder:
    """Finder of an unfinished experiment that is equal to a new submission, so that the submission is a duplicate.

    It caches the normalised code, environment and data of each snapshot, since a snapshot never changes.
    """

    def __init__(self, store: Store, archive: Archive, confined: Confined) -> None:
        self._store, self._archive, self._confined = store, archive, confined
        self._known: dict[str, str] = {}  # snapshot id -> text of its normalised content

    async def learn(self, draft: NewExperiment) -> None:
        """Read the snapshots that `find` will compare into the cache: those of the draft and of similar experiments.

        A snapshot that cannot be read is treated as different from all others.
        """
        repeated = await asyncio.to_thread(self._store.repeated_by, draft)
        others = {each.snapshot for each in repeated} - {draft.snapshot}
        for id in sorted(others | {draft.snapshot}) if others else ():
            if id not in self._known:
                try:
                    size = await asyncio.to_thread(self._archive.size, id, is_code)
                    found = await self._confined.call(draft.owner, meaning, self._archive.root, id, size=size)
                except InvalidRequest:  # too large to be read; this will not change
                    found = id
                except UNREADABLE as error:  # the snapshot of an older experiment is missing or damaged
                    _log.warning("snapshot %s is like no other: %s", id[:12], error)
                    continue
                while len(self._known) >= _REMEMBERED:
                    del self._known[next(iter(self._known))]
                self._known[id] = found

    def find(self, draft: NewExperiment) -> int | None:
        """Return the number of the newest active or paused experiment that `draft` duplicates; None if there is none.

        Experiments are duplicates if code, parameters and configuration are equal; names may differ.
        """
        for experiment in self._store.repeated_by(draft):
            if self._same(experiment.snapshot, draft.snapshot) and self._same_config(experiment, draft.config):
                return experiment.number
        return None

    def _same_config(self, experiment: Experiment, config: Config) -> bool:
        later = {name: getattr(config, name) for name in _CHANGEABLE}
        if experiment.config.model_copy(update=later) != config:
            return False
        return experiment.config == config or self._submitted(experiment) == config

    def _submitted(self, experiment: Experiment) -> Config:
        """Return an experiment's configuration as it was submitted, without later changes of its priority or slots."""
        first = self._store.messages(0, experiment.number, limit=1)
        return Experiment.model_validate(first[0].data).config if first else experiment.config

    def _same(self, one: str, other: str) -> bool:
        return one == other or self._known.get(one, one) == self._known.get(other, other)

"""The same thing submitted again while it is active: which experiment it is already."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from kernel_backend.model.code import code_id, is_code
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.states import ExperimentState
from kernel_backend.snapshots.archive import Archive
from kernel_backend.store.base import Draft, Store

_REMEMBERED = 1024  # snapshots
_ASKED = ("owner", "params", "space", "cwd", "python")
_GOING_ON = (ExperimentState.ACTIVE, ExperimentState.PAUSED)


def alike(experiment: Experiment, draft: Draft) -> bool:
    """Whether an experiment goes on that was asked for in the same words, but for its name, code and configuration."""
    asked = all(getattr(experiment, field) == getattr(draft, field) for field in _ASKED)
    return asked and experiment.state in _GOING_ON


def meaning(snapshot: Snapshot, files: dict[str, bytes]) -> str:
    """What of a snapshot can change a result: code as it is meant, environment and declared data."""
    data = sorted((each.name, each.digest) for each in snapshot.data)
    return repr((code_id(files), snapshot.environment.id, data, sorted(snapshot.commits)))


class Twins:
    """Finds them; what a snapshot means is worked out once, for an archive never changes."""

    def __init__(self, store: Store, archive: Archive) -> None:
        self._store = store
        self._meaning = lru_cache(_REMEMBERED)(lambda id: meaning(archive.snapshot(id), archive.files(id, is_code)))

    def find(self, draft: Draft, unfinished: Iterable[Experiment]) -> int | None:
        """The number of the newest of these experiments that is what `draft` asks for; None where there is none."""
        for experiment in sorted(unfinished, key=lambda each: each.number, reverse=True):
            same = alike(experiment, draft) and self._same(experiment.snapshot, draft.snapshot)
            if same and draft.config in (experiment.config, self._submitted(experiment)):
                return experiment.number
        return None

    def _submitted(self, experiment: Experiment) -> Config:
        """The configuration that it was submitted with: priority and slots may have been changed since."""
        first = self._store.messages(0, experiment.number, limit=1)
        return Experiment.model_validate(first[0].data).config if first else experiment.config

    def _same(self, one: str, other: str) -> bool:
        return one == other or self._meaning(one) == self._meaning(other)

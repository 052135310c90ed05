"""Read how an experiment uses its slots: now, on average over the training, and as curves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.launch.utilisation import (
    LATEST,
    RankUse,
    SlotUse,
    StoredUse,
    Utilisation,
    merged,
    thinned,
    together,
)
from kernel_backend.model.states import TrialState
from kernel_backend.service.access import visible
from kernel_backend.store.base import Store

LIVE_S = 60.0  # age of a sample up to which it counts as current
MOST_POINTS = 2000  # of the curves of all ranks together
FEWEST_POINTS = 20  # of each rank


class UtilisationReader:
    """Reader of how slots are used, for users who may see the experiment."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def utilisation(self, who: Person, number: int, trial: int | None, points: int) -> Utilisation:
        """Return how each rank of a trial uses its slot; for a search without `trial`, how all its trials together do.

        Curves have at most `points` periods. Raises NotFound.
        """
        experiment = await visible(self._store, who, number)
        return await asyncio.to_thread(self._read, experiment, trial, points, time.time())

    def _read(self, experiment: Experiment, trial: int | None, points: int, at: float) -> Utilisation:
        number = experiment.number
        if trial is None and experiment.config.search is not None:
            latest = [each.slot.use for each in self._store.latest_use(at - LIVE_S, number)]
            now = together(latest) if latest else None
            return Utilisation(live=bool(latest), latest=now, whole=self._store.total_use(number))
        chosen = trial or 1
        live = self._store.trial(number, chosen).state is TrialState.RUNNING
        return of_trial(chosen, self._store.use(number, chosen), points, at - LIVE_S if live else None)


def of_trial(trial: int, stored: Sequence[StoredUse], points: int, since: float | None) -> Utilisation:
    """Return how each rank of a trial used its slot, over all attempts, with curves of at most `points` periods.

    Only measurements later than the time `since` count as current; if `since` is None, none does.
    """
    newest = max((each.attempt for each in stored), default=0)
    ranks = sorted({each.slot.rank for each in stored if each.attempt == newest})
    each_points = min(points, max(FEWEST_POINTS, MOST_POINTS // max(1, len(ranks))))
    found = [_rank(rank, newest, stored, each_points, since) for rank in ranks]
    latest = [each.latest for each in found if each.latest is not None]
    return Utilisation(
        trial=trial,
        live=bool(latest),
        latest=together(latest) if latest else None,
        whole=merged([each.slot.use for each in stored if each.slot.number > LATEST]),
        ranks=tuple(found),
    )


def _rank(rank: int, newest: int, stored: Sequence[StoredUse], points: int, since: float | None) -> RankUse:
    own = [each for each in stored if each.slot.rank == rank]
    curve = [each.slot.use for each in own if each.slot.number > LATEST]
    last = [each.slot for each in own if each.attempt == newest]
    return RankUse(
        rank=rank,
        node=last[-1].node,
        device=last[-1].device,
        latest=_current(last[0].use, since) if last[0].number == LATEST else None,
        whole=merged(curve),
        curve=thinned(curve, points),
    )


def _current(use: SlotUse, since: float | None) -> SlotUse | None:
    return use if since is not None and use.at > since else None

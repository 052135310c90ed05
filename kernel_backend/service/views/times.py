"""Report how much time each part of a training takes, and find the main cause of lost time."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_backend.model.experiment import Experiment
from kernel_backend.model.states import TrialState
from kernel_backend.model.times import AttemptTimes, RankTimes, Split, Times, added
from kernel_backend.model.views.slowness import sentence
from kernel_backend.store.base import Store

LIVE_S = 10.0  # age of the last delivery up to which a search's ranks count as running


def read_times(store: Store, experiment: Experiment, trial: int | None, at: float) -> Times:
    """Return the time spent in each part of a trial's work; without `trial`, of the only trial or of a whole search.

    `at` is the present time in seconds since the epoch: only ranks with recent measurements count as running. Raises
    NotFound for a trial that does not exist.
    """
    if trial is None and experiment.config.search is not None:
        whole, latest = store.total_times(experiment.number, at - LIVE_S)
        return of_search(experiment, whole, [each for each in latest if each.now is not None])
    chosen = trial or 1
    state = store.trial(experiment.number, chosen).state
    return of_trial(experiment, chosen, state is TrialState.RUNNING, store.times(experiment.number, chosen))


def of_trial(experiment: Experiment, trial: int, live: bool, stored: Sequence[AttemptTimes]) -> Times:
    """Return the time spent in each part of a trial's work, for all ranks together and for each rank.

    The times are summed over all attempts; only ranks of the newest attempt are listed. `live` is True if the trial is
    running.
    """
    newest = max((each.attempt for each in stored), default=0)
    ranks = []
    for each in (found.times for found in stored if found.attempt == newest):
        whole = added(found.times.whole for found in stored if found.times.rank == each.rank)
        ranks.append(each.model_copy(update={"whole": whole}))
    live = live and any(each.now is not None for each in ranks)
    return Times(
        trial=trial,
        live=live,
        whole=added(found.times.whole for found in stored),
        minute=added(each.minute for each in ranks),
        ranks=tuple(ranks),
        sentence=sentence(ranks, experiment.config, live=live),
    )


def of_search(experiment: Experiment, whole: Split, running: Sequence[RankTimes]) -> Times:
    """Return the time spent in each part of the work of a search's trials, and the main cause of delay.

    `whole` is the sum over all trials; `running` are the times of the ranks that run now, for the last minute.
    """
    minute = added(each.minute for each in running)
    operations = sum(each.operations for each in running) / max(1, len(running))
    workers = max((each.workers for each in running), default=0)
    as_one = RankTimes(rank=0, whole=whole, minute=minute, workers=workers, operations=operations)
    return Times(
        trial=None,
        live=bool(running),
        whole=whole,
        minute=minute,
        sentence=sentence([as_one], experiment.config, live=bool(running)),
    )

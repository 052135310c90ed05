"""Experiments as people look at them: what the store knows, why one waits, and what its snapshot warns of."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from functools import lru_cache

from kernel_backend.errors import DaylightError
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.overview import Overview, Wait
from kernel_backend.model.states import HOLDING_SLOTS, Hold, TrialState
from kernel_backend.model.trial import Trial
from kernel_backend.scheduler.asks import ANY_TRIAL, Ask
from kernel_backend.scheduler.explain import explain
from kernel_backend.scheduler.picture import Picture
from kernel_backend.scheduler.placement import largest_gang
from kernel_backend.snapshots.archive import Archive

WARNED = 4096  # snapshots whose warnings are remembered: an archive never changes


class Overviews:
    """Completes what a store knows of experiments."""

    def __init__(self, archive: Archive, failed: Callable[[Experiment], str | None]) -> None:
        """`failed` says what ended a search besides its trials."""
        self._failed = failed
        self._snapshot_warnings = lru_cache(WARNED)(lambda id: archive.snapshot(id).warnings)

    def complete(self, known: Sequence[Overview], picture: Picture) -> list[Overview]:
        """The same overviews with their waits and all warnings. Reads archives: not on the event loop."""
        heads: dict[int, Ask] = {}
        for ask in picture.queue:
            heads.setdefault(ask.experiment, ask)
        return [self._complete(each, heads.get(each.experiment.number), picture) for each in known]

    def _complete(self, known: Overview, ask: Ask | None, picture: Picture) -> Overview:
        # The picture may be a moment older than the trials.
        states = {trial.state for trial in known.trials}
        waits = TrialState.QUEUED in states or (ask and ask.trial == ANY_TRIAL and not states & HOLDING_SLOTS)
        wait = explain(picture, ask) if ask and waits else _impossible(known.experiment, known.trials, picture)
        failed = self._failed(known.experiment)
        warnings = (*self._warnings(known.experiment.snapshot), *known.warnings, *([failed] if failed else []))
        return known.model_copy(update={"wait": wait, "warnings": tuple(dict.fromkeys(warnings))})

    def _warnings(self, id: str) -> tuple[str, ...]:
        try:
            return self._snapshot_warnings(id)
        except (DaylightError, OSError, ValueError, zipfile.BadZipFile) as error:
            # One damaged archive must not hide its experiment, nor the list that it stands in.
            return (f"its snapshot cannot be read ({type(error).__name__}): it trains no more",)


def _impossible(experiment: Experiment, trials: Sequence[Trial], picture: Picture) -> Wait | None:
    """Why a trial is held by the engine: fewer slots than when it was submitted, or its log excluded their node."""
    held = [trial for trial in trials if Hold.ENGINE in trial.holds]
    if not held:
        return None
    largest, asked = largest_gang(picture.nodes.values()), experiment.config.slots
    excluded = sorted(frozenset[str]().union(*(trial.excluded for trial in held)))
    reason = f"{asked} slots asked, and there are {largest} now; submit again with --slots {largest}"
    if asked <= largest and excluded:
        nodes = ", ".join(excluded)
        reason = f"left out after a line of the log (--on-log): {nodes}; pause and resume it to try there again"
    return Wait(reason=reason, place=1)

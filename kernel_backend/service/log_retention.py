"""Remove the logs of experiments that ended long ago: `daylight serve --keep-logs 90d`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

from kernel_backend.errors import DaylightError, NotFound
from kernel_backend.home import LOGS
from kernel_backend.model.checkpoints import LogsDecision
from kernel_backend.model.disk import DAY_S, logs_expired
from kernel_backend.model.experiment import Experiment
from kernel_backend.service.context import Context

LOOK_S = DAY_S / 4  # between searches for expired logs: each reads all experiments
ALL = 2**31 - 1

_log = logging.getLogger(__name__)


class LogRetention:
    """Removal of expired logs, attempt records and unpacked code.

    Reports, provenance records, snapshots, checkpoints and artifacts stay: reruns, comparisons and curves need no
    log.
    """

    def __init__(self, context: Context) -> None:
        self._store, self._workspaces, self._keep_s = context.store, context.workspaces, context.keep_logs
        self._done: set[int] = set()

    async def run(self) -> None:
        """Remove expired logs four times a day until cancelled; return at once if logs never expire."""
        while self._keep_s is not None:
            await asyncio.to_thread(self.remove_expired, time.time())
            await asyncio.sleep(LOOK_S)

    def remove_expired(self, now: float) -> None:
        """Remove all expired logs; the next call retries those that cannot be reached."""
        for experiment in self._expired(now):
            try:
                self.collect(experiment, now)
                self._done.add(experiment.number)
            except (DaylightError, OSError) as error:
                _log.warning("logs of experiment #%d could not be removed: %s", experiment.number, error)

    def collect(self, experiment: Experiment, now: float, *, dry_run: bool = False) -> LogsDecision | None:
        """Remove an experiment's logs if they are expired, and return what was removed; with `dry_run` remove nothing.

        Returns None if there is nothing to remove. Raises OSError or DaylightError if the files cannot be reached.
        """
        if experiment.ended_at is None or not logs_expired(experiment, now, self._keep_s):
            return None
        workspace = self._workspaces.of(experiment.owner)
        sizes = workspace.usage(experiment.number)
        count = sum(sizes.get(kind, 0) for kind in LOGS)
        if not count:
            return None
        if not dry_run:
            workspace.remove_logs(experiment.number)
        return LogsDecision(experiment=experiment.number, bytes=count, days=int((now - experiment.ended_at) / DAY_S))

    def check(self, experiment: Experiment, now: float) -> None:
        """Raise NotFound with the reason if the logs of an experiment are expired."""
        if logs_expired(experiment, now, self._keep_s):
            number, days = experiment.number, (self._keep_s or 0) / DAY_S
            raise NotFound(
                f"the logs of experiment #{number} are removed: the service keeps them for {days:g} days after the end "
                "(daylight serve --keep-logs). Reports, curves and checkpoints are kept"
            )

    def _expired(self, now: float) -> Iterator[Experiment]:
        for each in self._store.experiments(limit=ALL):
            if each.number not in self._done and logs_expired(each, now, self._keep_s):
                yield each

"""Remove old logs, and a part of old reports, of experiments that have ended: `daylight serve --keep-logs 90d`."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import NamedTuple

from kernel_backend.errors import DaylightError, NotFound
from kernel_backend.home import LOGS
from kernel_backend.model.checkpoints import LogsDecision, ReportsDecision
from kernel_backend.model.disk import DAY_S, expired
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.views.thinning import MOST_KEPT
from kernel_backend.service.context import Context

LOOK_S = DAY_S / 4  # between searches for expired logs and reports: each reads all experiments
ALL = 2**31 - 1

_log = logging.getLogger(__name__)


class Expired(NamedTuple):
    """Expired logs and reports of one experiment, removed or to be removed; a field is None if there are none."""

    logs: LogsDecision | None = None
    reports: ReportsDecision | None = None


class Retention:
    """Task that removes expired logs, attempt records and unpacked code, and a part of expired training reports.

    Validations, curves, provenance records, snapshots, checkpoints and artifacts stay: reruns and comparisons need no
    log, and a curve needs no more than a thousand points.
    """

    def __init__(self, context: Context) -> None:
        self._store, self._workspaces = context.store, context.workspaces
        self._keep_logs, self._keep_reports = context.keep_logs, context.keep_reports
        self._done: set[tuple[str, int, float | None]] = set()  # kind, experiment, and its end

    async def run(self) -> None:
        """Remove expired data four times a day until cancelled; return at once if the settings let nothing expire."""
        while self._keep_logs is not None or self._keep_reports is not None:
            await asyncio.to_thread(self.remove_expired, time.time())
            await asyncio.sleep(LOOK_S)

    def remove_expired(self, now: float) -> None:
        """Remove expired logs and reports of all experiments.

        Those that cannot be reached are logged, and removed by a later call.
        """
        try:
            experiments = self._store.experiments(limit=ALL)
        except DaylightError as error:
            _log.warning("what has expired is removed later: %s", error)
            return
        for experiment in experiments:
            try:
                self.collect(experiment, now)
            except (DaylightError, OSError) as error:
                _log.warning("logs of experiment #%d could not be removed: %s", experiment.number, error)

    def collect(self, experiment: Experiment, now: float, *, dry_run: bool = False) -> Expired:
        """Remove an experiment's expired logs and reports, and return what was removed; with `dry_run` only return it.

        Raises OSError or DaylightError if the files cannot be reached.
        """
        return Expired(
            reports=self._collect_reports(experiment, now, dry_run), logs=self._collect_logs(experiment, now, dry_run)
        )

    def check(self, experiment: Experiment, now: float) -> None:
        """Raise NotFound if the logs of an experiment are expired."""
        if expired(experiment, now, self._keep_logs):
            number, days = experiment.number, (self._keep_logs or 0) / DAY_S
            raise NotFound(
                f"the logs of experiment #{number} are removed: the service keeps them for {days:g} days after the end "
                "(daylight serve --keep-logs). Reports, curves and checkpoints are kept"
            )

    def _collect_logs(self, experiment: Experiment, now: float, dry_run: bool) -> LogsDecision | None:
        number = experiment.number
        if ("logs", number, experiment.ended_at) in self._done or not expired(experiment, now, self._keep_logs):
            return None
        workspace = self._workspaces.of(experiment.owner)
        sizes = workspace.usage(number)
        count = sum(sizes.get(kind, 0) for kind in LOGS)
        if not dry_run:
            if count:
                workspace.remove_logs(number)
            self._done.add(("logs", number, experiment.ended_at))
        return LogsDecision(experiment=number, bytes=count, days=_days(experiment, now)) if count else None

    def _collect_reports(self, experiment: Experiment, now: float, dry_run: bool) -> ReportsDecision | None:
        number = experiment.number
        if ("reports", number, experiment.ended_at) in self._done or not expired(experiment, now, self._keep_reports):
            return None
        thinned = self._store.thin_reports(number, MOST_KEPT, dry_run=dry_run)
        if not dry_run:
            self._done.add(("reports", number, experiment.ended_at))
        if not thinned.removed:
            return None
        return ReportsDecision(experiment=number, removed=thinned.removed, of=thinned.of, days=_days(experiment, now))


def _days(experiment: Experiment, now: float) -> int:
    return int((now - (experiment.ended_at or now)) / DAY_S)

"""Define the interface of the store's part for launchers' measurements: times of ranks, use of slots."""

from __future__ import annotations

from typing import Protocol

from kernel_backend.model.cluster.accounting import AttemptSpending
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.utilisation import SlotUse, StoredUse
from kernel_backend.model.reports import Measurements
from kernel_backend.model.times import AttemptTimes, RankTimes, Split


class MeasuredStore(Protocol):
    """Part of a store for the measurements of launchers."""

    def keep_measured(self, key: AttemptId, measured: Measurements, at: float) -> None:
        """Store the measurements of an attempt that its launcher delivered at time `at`.

        Times of a rank are replaced, unless the stored ones are final and these are not. A record of a slot's use
        replaces one of the same rank and number.
        """

    def times(self, number: int, trial: int) -> list[AttemptTimes]:
        """Return the newest times of a trial's ranks in each attempt, the oldest attempt's first."""

    def total_times(self, number: int, since: float) -> tuple[Split, list[RankTimes]]:
        """Return the summed times of an experiment, and the times of ranks that delivered after `since`."""

    def use(self, number: int, trial: int) -> list[StoredUse]:
        """Return the use of a trial's slots: by attempt, rank and number."""

    def total_use(self, number: int) -> SlotUse:
        """Return the use of all slots that an experiment held: means and maxima over the measured time."""

    def spending(self, owner: str | None, since: float, until: float) -> list[AttemptSpending]:
        """Return the attempts that held slots between two times, of one owner or all.

        Open ones count as ending at `until`.
        """

    def recent_use(self, since: float) -> list[StoredUse]:
        """Return the newest samples of the gangs that hold slots, and their periods that ended after `since`."""

    def latest_use(self, since: float, number: int | None = None) -> list[StoredUse]:
        """Return the newest samples after `since` of the trials that hold slots, of one experiment or of all."""

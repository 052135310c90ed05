"""Define the part of a store's interface for what launchers measure: times of ranks, use of slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kernel_backend.model.cluster.accounting import AttemptSpending
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.utilisation import DeliveredUse, SlotUse, StoredUse
from kernel_backend.model.times import AttemptTimes, RankTimes, Split


class MeasuredStore(Protocol):
    """Part of a store for what launchers measure."""

    def keep_times(self, key: AttemptId, times: Sequence[RankTimes], at: float) -> None:
        """Replace the times of some ranks of an attempt by newer ones, delivered at `at`."""

    def times(self, number: int, trial: int) -> list[AttemptTimes]:
        """Return the newest times of a trial's ranks in each attempt, the oldest attempt's first."""

    def total_times(self, number: int, since: float) -> tuple[Split, list[RankTimes]]:
        """Return the summed times of an experiment, and the times of ranks that delivered after `since`."""

    def keep_use(self, key: AttemptId, slots: Sequence[DeliveredUse]) -> None:
        """Store the use of slots of an attempt, replacing records of the same rank and number."""

    def use(self, number: int, trial: int) -> list[StoredUse]:
        """Return the use of a trial's slots: by attempt, rank and number."""

    def total_use(self, number: int) -> SlotUse:
        """Return the use of all slots that an experiment has held: means and largest values over the measured time."""

    def spending(self, owner: str | None, since: float, until: float) -> list[AttemptSpending]:
        """Return the attempts that held slots between two times, of one owner or of all; open ones end at `until`."""

    def recent_use(self, since: float) -> list[StoredUse]:
        """Return the newest samples and the periods that ended after `since` of the gangs that hold slots."""

    def latest_use(self, since: float, number: int | None = None) -> list[StoredUse]:
        """Return the newest samples after `since` of the trials that hold slots, of one experiment or of all."""

"""Define the interface of the part of a store that holds what launchers measure: times of ranks, use of slots."""

from __future__ import annotations

from typing import Protocol

from kernel_backend.model.cluster.accounting import AttemptSpending
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.utilisation import SlotUse, StoredUse
from kernel_backend.model.reports import Measurements
from kernel_backend.model.times import AttemptTimes, RankTimes, Split


class MeasuredStore(Protocol):
    """Part of a store that holds what launchers measure.

    These are the seconds that ranks spend in each part of their work, and how much of its GPU, CPU and memory a rank
    uses.
    """

    def keep_measured(self, key: AttemptId, measured: Measurements, at: float) -> None:
        """Store the measurements of an attempt that its launcher delivered at time `at`.

        The stored times of a rank are replaced, unless they are final and the new ones are not. A record of a slot's
        use replaces the record with the same rank and number.
        """

    def times(self, number: int, trial: int) -> list[AttemptTimes]:
        """Return the seconds that a trial's ranks last reported for each part of their work, oldest attempt first."""

    def total_times(self, number: int, since: float) -> tuple[Split, list[RankTimes]]:
        """Return the seconds spent in each part of an experiment's work, summed over all ranks and attempts.

        Also return the seconds of each single rank that has delivered them after the time `since`.
        """

    def use(self, number: int, trial: int) -> list[StoredUse]:
        """Return the records of how a trial's slots were used, ordered by attempt, rank and number."""

    def total_use(self, number: int) -> SlotUse:
        """Return the use of all slots that an experiment held, as one record.

        Rates are means over the measured time of all slots; bytes and temperature are the largest values.
        """

    def spending(self, owner: str | None, since: float, until: float) -> list[AttemptSpending]:
        """Return the attempts that held slots between the times `since` and `until`, of one owner or of all.

        Attempts that have not ended count as ending at `until`.
        """

    def recent_use(self, since: float) -> list[StoredUse]:
        """Return how the gangs that hold slots now have used them since the time `since`.

        These are the newest sample of each rank, and the periods of its curve that ended after `since`.
        """

    def latest_use(self, since: float, number: int | None = None) -> list[StoredUse]:
        """Return the newest sample of each rank of the trials that hold slots, if it was taken after `since`.

        `number` selects the trials of one experiment; None selects all.
        """

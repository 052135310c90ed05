"""Measure, until the ranks of a node end, the times of their steps and the use of their slots."""

from __future__ import annotations

from kernel_backend.launch.times import TimesReader
from kernel_backend.launch.utilisation.sampler import UseSampler
from kernel_backend.model.reports import Measurements


class Measuring:
    """Measurements of a node's ranks: the newest ones for the next delivery, and the final ones."""

    def __init__(self, times: TimesReader, use: UseSampler) -> None:
        self._times, self._use = times, use

    def start(self) -> None:
        """Begin to sample the use of the slots."""
        self._use.start()

    def due(self) -> Measurements:
        """Return the measurements to be delivered now; nothing between two deliveries."""
        return Measurements(times=self._times.due(), use=self._use.due())

    def delivered(self, sent: Measurements) -> None:
        """Record that the service has received the measurements that `due` returned."""
        self._times.delivered()
        self._use.delivered(sent.use)

    def finish(self) -> Measurements:
        """Stop measuring after the end of the ranks; return the final measurements, with all use not yet delivered."""
        return Measurements(times=self._times.end(), use=self._use.finish())

"""Measure the step times of a node's ranks and the use of their slots, until the ranks end."""

from __future__ import annotations

from kernel_backend.launch.times import TimesReader
from kernel_backend.launch.utilisation.sampler import UseSampler
from kernel_backend.model.reports import Measurements


class Measuring:
    """Measurements of a node's ranks: the newest ones for the next delivery to the service, and the final ones."""

    def __init__(self, times: TimesReader, use: UseSampler) -> None:
        self._times, self._use = times, use

    def start(self) -> None:
        """Begin to measure the use of the slots."""
        self._use.start()

    def due(self) -> Measurements:
        """Return the measurements for the next delivery to the service; step times are left out until they are due."""
        return Measurements(times=self._times.due(), use=self._use.due())

    def delivered(self, sent: Measurements) -> None:
        """Record that the service has received these measurements, which `due` returned."""
        self._times.delivered()
        self._use.delivered(sent.use)

    def finish(self) -> Measurements:
        """Stop measuring, as the ranks have ended; return the final step times, and all slot use not delivered yet."""
        return Measurements(times=self._times.end(), use=self._use.finish())

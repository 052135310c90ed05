"""Hold the phases in which starting attempts are."""

from __future__ import annotations

from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.progress import OF_START
from kernel_backend.model.reports import Delivery
from kernel_backend.model.views.starting import StartPhase

MOST = 10_000  # attempts: one that dies in its start tells nothing more


class StartPhases:
    """Newest phase of each attempt that starts, as its launcher tells it with each heartbeat.

    They are kept in memory only: after a restart of the service, launchers tell them again within seconds.
    """

    def __init__(self) -> None:
        self._phases: dict[AttemptId, StartPhase] = {}

    def take(self, key: AttemptId, delivery: Delivery, now: float) -> None:
        """Store the phase in a delivery of attempt `key`, or forget the attempt if it has started and tells no more."""
        self._phases.pop(key, None)
        if delivery.phase and (delivery.phase in OF_START or delivery.phase_text):
            self._phases[key] = StartPhase(delivery.phase, now - delivery.phase_seconds, delivery.phase_text)
        if len(self._phases) > MOST:
            del self._phases[next(iter(self._phases))]

    def of(self, key: AttemptId) -> StartPhase | None:
        """Return the phase of an attempt; None if it is not known, or the attempt has started."""
        return self._phases.get(key)

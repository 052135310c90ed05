"""Define the constants of scheduling, such as the half-life of usage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Constants of the scheduler: times in seconds, and some fractions and probabilities.

    Raises ValueError for impossible values.
    """

    half_life: float = 86400.0  # half-life of past usage
    advance: float = 3600.0  # usage charged in advance for slots that an account holds
    min_run: float = 120.0  # minimum time between a gang's first checkpoint and its preemption
    grace: float = 120.0  # for a gang to commit a checkpoint and exit
    soon: float = 300.0  # slots of a reservation that is due in less than this are not backfilled
    patience: float = 3600.0  # age of a reservation from which preemptible requests may not use its slots either
    starving: float = 86400.0  # time at the head of a user queue after which a request gets a reservation
    risk: float = 0.05  # maximum probability with which all gangs backfilled by forecast may delay a reservation
    restarts: float = 0.05  # maximum fraction of its time for which an elastic gang restarts in order to grow
    unplaced: float = 60.0  # time in a site's queue after which an elastic gang takes its least number of slots
    idle_servers: float | None = None  # idle time after which a notebook server may be stopped; None: never

    def __post_init__(self) -> None:
        if self.half_life <= 0:
            raise ValueError(f"a half-life of {self.half_life} s: use would never count")
        for name in ("advance", "min_run", "grace", "soon", "patience", "starving", "unplaced"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} of {getattr(self, name)} s lies in the past")
        if not 0 < self.restarts <= 1:
            raise ValueError(f"restarts of {self.restarts}: a fraction above 0 and up to 1 is needed")
        if not 0 <= self.risk < 1:
            raise ValueError(f"a risk of {self.risk}: a probability of at least 0 and below 1 is needed")
        if self.idle_servers is not None and self.idle_servers <= 0:
            raise ValueError(f"idle_servers of {self.idle_servers} s: every notebook server would be idle")

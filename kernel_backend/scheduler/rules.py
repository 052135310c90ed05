"""Define the constants of scheduling."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Constants of decay, preemption, reservations and starvation, in seconds.

    Raises ValueError for impossible values.
    """

    half_life: float = 86400.0  # use of so long ago counts half
    advance: float = 3600.0  # a holder of slots is charged with so much more of them at once
    min_run: float = 120.0  # no gang is preempted sooner after its first checkpoint
    grace: float = 120.0  # what a gang gets to commit a checkpoint and leave
    soon: float = 300.0  # what a reservation waits for so briefly is left to it alone
    patience: float = 3600.0  # after which preemptible requests may not pass a reservation either
    starving: float = 86400.0  # after which the first request of a user queue gets a reservation, whatever the shares
    risk: float = 0.05  # how likely those who pass a reservation by a forecast, taken together, may make it late
    idle_servers: float | None = None  # after which an idle notebook server may be stopped for its slots; None: never

    def __post_init__(self) -> None:
        if self.half_life <= 0:
            raise ValueError(f"a half-life of {self.half_life} s: use would never count")
        for name in ("advance", "min_run", "grace", "soon", "patience", "starving"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} of {getattr(self, name)} s lies in the past")
        if not 0 <= self.risk < 1:
            raise ValueError(f"a risk of {self.risk}: a probability of at least 0 and below 1 is needed")
        if self.idle_servers is not None and self.idle_servers <= 0:
            raise ValueError(f"idle_servers of {self.idle_servers} s: every notebook server would be idle")

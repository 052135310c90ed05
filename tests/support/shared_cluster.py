"""A machine that two groups share: a real service in this process, real gangs, and a guarantee for one group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_backend import discovery
from kernel_backend.engines.local import LocalEngine
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.scheduler.rules import Rules
from tests.api.served import TOKEN, Served
from tests.support.world import World

BORROWS, OWNS = "speech", "vision"
DAVE = Person(name="dave", groups=(BORROWS, OWNS), admin=True)


class InBothGroups:
    """An identity that knows one person, whoever asks with the right token."""

    async def who(self, token: str, *, remembered: bool = False) -> Person | None:
        return DAVE if token == TOKEN else None


class Lent(World):
    """Slots that one group borrows, of which two are guaranteed to another."""

    def __init__(self, home: Path, rules: Rules) -> None:
        """The environment says how many slots there are (DAYLIGHT_SLOTS)."""
        super().__init__(home)
        self.served = Served(home, LocalEngine(home), identity=InBothGroups(), rules=rules)  # type: ignore[arg-type]
        self.served.roster.groups = {OWNS: Quota(guarantee=2)}
        discovery.write_private(home / "token", TOKEN)
        discovery.announce(home, "127.0.0.1", self.served.port)

    def asks(self, group: str, **options: Any) -> int:
        """An experiment of a group."""
        return self.submit(group=group, **options).experiment.number

    def close(self) -> None:
        """End the service, and everything that still runs."""
        self.served.stop()
        super().close()

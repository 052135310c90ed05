"""Run a real service in this process, with real gangs, for two groups of which one has a guarantee."""

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
    """Identity provider that returns the same user, a member of both groups, for the valid token."""

    async def who(self, token: str, *, remembered: bool = False) -> Person | None:
        return DAVE if token == TOKEN else None


class Lent(World):
    """Cluster in which one group borrows slots, two of which are guaranteed to another group."""

    def __init__(self, home: Path, rules: Rules) -> None:
        """Start the service; the environment variable DAYLIGHT_SLOTS sets the number of slots."""
        super().__init__(home, shared_forkserver=True)
        self.served = Served(home, LocalEngine(home), identity=InBothGroups(), rules=rules)  # type: ignore[arg-type]
        self.served.roster.groups = {OWNS: Quota(guarantee=2)}
        discovery.write_private(home / "token", TOKEN)
        discovery.announce(home, "127.0.0.1", self.served.port)

    def asks(self, group: str, **options: Any) -> int:
        """Submit an experiment for a group."""
        return self.submit(group=group, **options).experiment.number

    def close(self) -> None:
        """End the service, and all processes that still run."""
        self.served.stop()
        super().close()

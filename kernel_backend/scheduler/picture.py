"""What the scheduler looks at: nodes, what is held on them, and who asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_backend.model.resources import Node


@dataclass(frozen=True)
class Ask:
    """A trial that wants a gang."""

    experiment: int
    trial: int
    slots: int
    queued_at: float  # kept through faults: the place in the queue
    excluded: frozenset[str] = frozenset()  # nodes that it must not have
    failed_at: float = 0.0  # when its last attempt ended
    rest: float = 0.0  # seconds that it rests from then on
    trouble: str = ""  # why it could not be started when its turn came
    preparing: str = ""  # what it waits for before it has a turn

    @property
    def order(self) -> tuple[float, int, int]:
        """First come, first served; ties by number."""
        return self.queued_at, self.experiment, self.trial


@dataclass(frozen=True)
class Picture:
    """The cluster at the moment `at`; `used` has the slot indices that attempts hold, by node."""

    nodes: tuple[Node, ...]
    used: Mapping[str, frozenset[int]] = field(default_factory=dict)
    queue: tuple[Ask, ...] = ()
    at: float = 0.0

    def awake(self) -> list[Ask]:
        """The asks that would start now if they could, first come first.

        One that rests holds nobody up, nor does one for which something is still prepared.
        """
        ready = (ask for ask in self.queue if not ask.preparing and not self.rests(ask))
        return sorted(ready, key=lambda ask: ask.order)

    def rests(self, ask: Ask) -> bool:
        """Whether it is too soon after this ask's last failure to try again."""
        return 0 <= self.at - ask.failed_at < ask.rest  # not forever, should the clock be set back

    def nodes_for(self, ask: Ask) -> tuple[Node, ...]:
        """The nodes that this ask may have."""
        return tuple(node for node in self.nodes if node.name not in ask.excluded)

    def free(self) -> dict[str, list[int]]:
        """The slot indices that nobody holds, on each healthy node."""
        return {
            node.name: [slot for slot in range(node.slots) if slot not in self.used.get(node.name, frozenset())]
            for node in self.nodes
            if node.healthy
        }

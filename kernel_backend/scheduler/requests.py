"""Define slot requests, allocations and reservations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from kernel_backend.model.resources import LOCAL, Placement

ANY_TRIAL = 0  # the trial of a request whose search chooses it when a gang is granted


class RequestKey(NamedTuple):
    """Key of a request by a trial, by a search for its nth gang (`trial` 0), or by a notebook server."""

    experiment: int
    trial: int
    nth: int = 0
    server: str = ""  # its full name, as `dave/`

    def __str__(self) -> str:
        if self.server:
            return f"notebook server {self.server}"
        return f"#{self.experiment}" if self.trial == ANY_TRIAL else f"#{self.experiment}.{self.trial}"


class Shape(NamedTuple):
    """Fields by which equal requests are grouped: if the first of a shape does not fit, none does."""

    slots: int
    one_node: bool
    excluded: frozenset[str]
    preemptible: bool
    max_time: float | None


Order = tuple[float, int, int, int]


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """Request for the slots of a gang, by a queued trial or by a search that could train one more."""

    experiment: int
    trial: int
    slots: int
    queued_at: float  # kept through faults: it decides the position in the queue
    excluded: frozenset[str] = frozenset()  # nodes that it must not have
    failed_at: float = 0.0  # when its last attempt ended
    rest: float = 0.0  # seconds of backoff from then on
    error: str = ""  # why it could not be started when it was first
    preparing: str = ""  # what it waits for before it is eligible
    owner: str = ""
    group: str = ""
    pool: str = LOCAL
    priority: int = 0
    by_admin: bool = False  # its priority is an admin's: no quota lowers it
    one_node: bool = False
    preemptible: bool = False  # it may be preempted for one that it has overtaken
    max_time: float | None = None  # seconds after which it ends at the latest
    nth: int = 0  # of the requests of a search
    # Made at once: with 100,000 requests, cached properties take twice as long.
    key: RequestKey = field(init=False, compare=False, repr=False)
    order: Order = field(init=False, compare=False, repr=False)  # first come, first served; ties by number
    shape: Shape = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "key", RequestKey(self.experiment, self.trial, self.nth))
        put(self, "order", (self.queued_at, self.experiment, self.trial, self.nth))
        put(self, "shape", Shape(self.slots, self.one_node, frozenset(self.excluded), self.preemptible, self.max_time))

    @property
    def size(self) -> tuple[str, int]:
        """Return the key of past runs that its length is predicted from: owner and number of slots."""
        return self.owner, self.slots

    def backs_off(self, at: float) -> bool:
        """Return whether a request is still in backoff after its trial's last failed attempt."""
        return 0 <= at - self.failed_at < self.rest  # not forever, should the clock be set back


class Reservation(NamedTuple):
    """Reservation of free slots for a request since `since`: on one node, or on all nodes of a kind.

    It is lost if the request's priority falls below that by which it was made.
    """

    key: RequestKey
    kind: str
    node: str | None
    since: float
    priority: int | None = None  # by which it was got, where that is recorded

    def stands(self, request: SlotRequest) -> bool:
        """Return whether a request still has at least the priority by which its reservation was made."""
        return self.priority is None or request.priority >= self.priority


@dataclass(frozen=True)
class Allocation:
    """Allocation of slots to a gang. Those granted beyond a guarantee are borrowed."""

    key: RequestKey
    placement: Placement
    since: float
    owner: str = ""
    group: str = ""
    pool: str = LOCAL
    committed: float | None = None  # when this attempt's first checkpoint was
    ends: float | None = None  # at the latest
    passed: bool = False  # it was started ahead of a reservation, and is preempted when that needs its slots
    leaving: float | None = None  # when it was asked to leave
    last_activity: float | None = None  # of a notebook server
    reservation: Reservation | None = field(default=None, compare=False)  # by which it was started

    @cached_property
    def slots(self) -> int:
        """Return how many slots the gang holds."""
        return sum(len(share.slots) for share in self.placement)

    @cached_property
    def by_node(self) -> Counter[str]:
        """Return how many slots the gang holds on each node."""
        return Counter({share.node: len(share.slots) for share in self.placement})

    @cached_property
    def kind(self) -> str:
        """Return the kind of the gang's devices."""
        return self.placement[0].kind if self.placement else ""

    def on(self, excluded: frozenset[str]) -> int:
        """Return the number of slots on nodes other than the excluded ones."""
        return self.slots - sum(self.by_node[name] for name in excluded) if excluded else self.slots

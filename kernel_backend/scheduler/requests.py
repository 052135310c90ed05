"""Define slot requests, allocations and reservations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from kernel_backend.model.resources import LOCAL, Placement
from kernel_backend.scheduler.speedup import Progress

ANY_TRIAL = 0  # trial number in a request of a search, which chooses the trial when a gang is granted


class RequestKey(NamedTuple):
    """Key of a request for slots, and of the allocation that it leads to.

    It is a trial's, or that of a search that has not chosen a trial yet (`trial` is 0, and `nth` counts its requests).
    Notebook servers and other programs that hold slots have keys, too.
    """

    experiment: int
    trial: int
    nth: int = 0
    server: str = ""  # full name of a notebook server, such as `dave/`
    outside: str = ""  # name of a program outside of Daylight, such as `pod ml/web`
    node: str = ""  # the node on which that program holds slots

    @property
    def is_gang(self) -> bool:
        """Return whether the slots are those of a gang, not of a notebook server or another program."""
        return not self.server and not self.outside

    def __str__(self) -> str:
        if self.outside:
            return self.outside
        if self.server:
            return f"notebook server {self.server}"
        return f"#{self.experiment}" if self.trial == ANY_TRIAL else f"#{self.experiment}.{self.trial}"


class Shape(NamedTuple):
    """Size and constraints of a request; on the same nodes, all requests of one shape fit or none does."""

    slots: int
    one_node: bool
    excluded: frozenset[str]
    preemptible: bool
    max_time: float | None
    pools: tuple[str, ...]


Order = tuple[float, int, int, int]


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """Request for the slots of a gang, by a queued trial, or by a search that could train another trial.

    A request is elastic if `larger` is not empty: it starts with `slots`, its minimum number of slots, or with one of
    the `larger` numbers if nobody else waits for the additional slots.
    """

    experiment: int
    trial: int
    slots: int
    queued_at: float  # unchanged by faults: it determines the position in the queue
    excluded: frozenset[str] = frozenset()  # nodes that must not be used
    failed_at: float = 0.0  # end of the trial's last attempt
    rest: float = 0.0  # seconds of backoff after `failed_at`
    error: str = ""  # why the last start failed
    preparing: str = ""  # why it is not eligible yet; "" if it is
    owner: str = ""
    group: str = ""
    pool: str = LOCAL
    pools: tuple[str, ...] = ()  # all pools in which it waits, the preferred first; () if `pool` is the only one
    priority: int = 0
    by_admin: bool = False  # an admin has set the priority: quotas do not cap it
    one_node: bool = False
    preemptible: bool = False  # it may be preempted by a request whose reserved slots it uses
    max_time: float | None = None  # seconds after which the gang is paused
    nth: int = 0  # index among the requests of a search
    larger: Sequence[int] = ()  # ascending
    preferred: frozenset[str] = frozenset()  # nodes that have its data: they go first among equally good ones
    # Computed at creation: with 100,000 requests, cached properties take twice as long.
    key: RequestKey = field(init=False, compare=False, repr=False)
    order: Order = field(init=False, compare=False, repr=False)  # time of queueing; ties by number
    shape: Shape = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "key", RequestKey(self.experiment, self.trial, self.nth))
        put(self, "order", (self.queued_at, self.experiment, self.trial, self.nth))
        excluded = frozenset(self.excluded)
        put(self, "shape", Shape(self.slots, self.one_node, excluded, self.preemptible, self.max_time, self.pools))

    @property
    def size(self) -> tuple[str, int]:
        """Return (owner, number of slots): runs of the same owner and size predict how long this one will take."""
        return self.owner, self.slots

    @property
    def in_each_pool(self) -> tuple[SlotRequest, ...]:
        """Return a copy of the request for each pool in which it waits, the preferred pool first."""
        if not self.pools:
            return (self,)
        return tuple(self if pool == self.pool else replace(self, pool=pool) for pool in self.pools)

    def within(self, pool: str) -> SlotRequest | None:
        """Return a copy of the request as it waits in this pool; None if it does not wait there."""
        if not self.pools:  # the usual case, which must be fast
            return self if self.pool == pool else None
        return next((each for each in self.in_each_pool if each.pool == pool), None)

    def backs_off(self, at: float) -> bool:
        """Return whether, at time `at`, the trial must still wait before it is retried after a failed attempt."""
        return 0 <= at - self.failed_at < self.rest  # ends even if the clock is set back


class Reservation(NamedTuple):
    """Reservation of slots for a request, made at time `since`: on one node, or on any nodes with one kind of device.

    It lapses if the request's priority falls below the priority at which the reservation was made.
    """

    key: RequestKey
    kind: str
    node: str | None
    since: float
    priority: int | None = None  # priority of the request when it was made; None if unknown

    def stands(self, request: SlotRequest) -> bool:
        """Return whether a request's priority is still at least the one at which this reservation was made."""
        return self.priority is None or request.priority >= self.priority


@dataclass(frozen=True)
class Allocation:
    """Slots that a gang, a notebook server or another program holds.

    Slots beyond a guarantee are borrowed: they may be reclaimed. An elastic gang keeps the slots beyond its least
    number only as long as no other request needs them.
    """

    key: RequestKey
    placement: Placement
    since: float
    owner: str = ""
    group: str = ""
    pool: str = LOCAL
    committed: float | None = None  # when this attempt committed its first checkpoint
    ends: float | None = None  # when it is paused, by its time limit
    passed: bool = False  # it uses reserved slots, and is preempted when they are needed
    leaving: float | None = None  # when it was asked to exit
    waiting: bool = False  # in the own queue of its engine, which has not granted the slots yet
    actual: Placement = ()  # where it really runs, if its engine has chosen the nodes
    last_activity: float | None = None  # of a notebook server
    reservation: Reservation | None = field(default=None, compare=False)  # its next request gets it
    elastic: SlotRequest | None = field(default=None, compare=False)  # request of an elastic gang after it has exited
    returns: bool = False  # it was asked to exit only to come back with another number of slots
    progress: Progress | None = field(default=None, compare=False)  # of an elastic gang, once it is known

    @cached_property
    def slots(self) -> int:
        """Return how many slots the gang holds."""
        return sum(len(share.slots) for share in self.placement)

    @property
    def surplus(self) -> int:
        """Return how many slots an elastic gang holds beyond its least number; 0 for other gangs."""
        return 0 if self.elastic is None else max(0, self.slots - self.elastic.slots)

    @property
    def freed(self) -> int:
        """Return how many of the gang's slots become free for other requests if it exits as requested.

        A gang that exits only to restart with another size keeps its minimum number of slots.
        """
        return self.surplus if self.returns else self.slots

    @cached_property
    def by_node(self) -> Counter[str]:
        """Return how many slots the gang holds on each node."""
        return Counter({share.node: len(share.slots) for share in self.placement})

    @cached_property
    def kind(self) -> str:
        """Return the kind of device of the gang's slots."""
        return self.placement[0].kind if self.placement else ""

    def on(self, excluded: frozenset[str]) -> int:
        """Return how many of the gang's slots are on nodes that are not excluded."""
        return self.slots - sum(self.by_node[name] for name in excluded) if excluded else self.slots

"""Records of a shared cluster for display: accounts, quotas and usage, queues, and the audit log."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import FiniteFloat

from kernel_backend.model.cluster.people import Person
from kernel_backend.model.cluster.quotas import Quota, Use
from kernel_backend.model.cluster.servers import Server
from kernel_backend.model.record import Record
from kernel_backend.model.views.overview import Wait

AccountKind = Literal["user", "group"]


class Account(Record):
    """A user or a group, with quota and usage."""

    kind: AccountKind
    name: str
    quota: Quota  # in force
    given: Quota | None = None  # by the hub; None where it says nothing. What is set here wins, number by number
    changed: dict[str, Any] = {}  # the numbers that are set here, by field of Quota
    use: Use
    members: tuple[str, ...] = ()  # of a group; of a user the groups, the first of which they ask in
    warnings: tuple[str, ...] = ()  # what of these numbers cannot be had, or is not as the hub says it


class Self(Record):
    """The calling user, with their accounts and notebook servers."""

    person: Person
    accounts: tuple[Account, ...]  # their own, then those of their groups
    servers: tuple[Server, ...] = ()  # their notebook servers that hold slots


class UseOverTime(Record):
    """Usage over time: an account held `held[i]` slots on average from `at[i]` to `at[i + 1]`."""

    at: tuple[FiniteFloat, ...]  # seconds since the epoch; one more than `held`
    held: tuple[FiniteFloat, ...]
    quota: Quota


class Waiting(Record):
    """A queued request. One that the user may not see has no number and no name."""

    pool: str
    place: int  # from 1, in its pool
    slots: int
    queued_at: FiniteFloat
    priority: int
    owner: str
    group: str
    experiment: int | None = None
    trial: int | None = None  # None of a search that has not said which
    name: str | None = None
    wait: Wait | None = None
    by_admin: bool = False  # its priority, or that it is first, is an admin's


class Pool(Record):
    """Nodes with a queue of their own. One engine runs all gangs of a pool."""

    name: str
    engine: str  # local, slurm, kubernetes
    kinds: tuple[str, ...]  # of devices
    slots: int
    used: int
    waiting: int


class Priority(Record):
    """Body of `POST /api/queue/N/priority`."""

    priority: int | None  # None: as its owner asked, without what an admin has given


class AuditEntry(Record):
    """An audit entry: an action on another user's experiment, a quota, the queue or a node."""

    seq: int = 0  # the store gives it
    at: FiniteFloat
    who: str
    act: str  # `quota`, `drain`, `undrain`, `priority`, `stop`, ...
    on: str  # `user ada`, `group vision`, `node n1`, `#12`
    detail: str = ""  # before and after, in words

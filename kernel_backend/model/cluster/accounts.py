"""Define the records that show users the cluster: accounts, slot use over time, queues and the audit log."""

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
    """User or group, with its quota and its use of slots."""

    kind: AccountKind
    name: str
    quota: Quota  # the quota in force
    given: Quota | None = None  # by the hub, None if it sets none; fields of `changed` take precedence
    changed: dict[str, Any] = {}  # the fields of Quota that admins have set in this service
    use: Use
    members: tuple[str, ...] = ()  # users of a group; or groups of a user, the default group first
    warnings: tuple[str, ...] = ()  # quota fields that are invalid or conflict with others


class Self(Record):
    """The calling user, with their accounts and notebook servers."""

    person: Person
    accounts: tuple[Account, ...]  # the user's own account, then those of their groups
    servers: tuple[Server, ...] = ()  # the user's notebook servers that hold slots


class UseOverTime(Record):
    """Slot use of an account: it held `held[i]` slots on average between the times `at[i]` and `at[i + 1]`."""

    at: tuple[FiniteFloat, ...]  # seconds since the epoch; one more element than `held`
    held: tuple[FiniteFloat, ...]
    quota: Quota


class Waiting(Record):
    """Queued request for slots; experiment number and name are None if the user may not see the experiment."""

    pool: str
    place: int  # position in the queue of its pool, from 1
    slots: int
    queued_at: FiniteFloat
    priority: int
    owner: str
    group: str
    experiment: int | None = None
    trial: int | None = None  # None: a search that has not chosen the trial yet
    name: str | None = None
    wait: Wait | None = None
    by_admin: bool = False  # an admin has set the priority


class Priority(Record):
    """Body of `POST /api/queue/N/priority`, which sets an experiment's priority."""

    priority: int | None  # None: remove the priority set by an admin, so that the owner's applies


class AuditEntry(Record):
    """Audit entry: an action on another user's experiment, or on a quota, the queue, a node or a pool."""

    seq: int = 0  # assigned by the store
    at: FiniteFloat
    who: str
    act: str  # `quota`, `drain`, `undrain`, `priority`, `stop`, ...
    on: str  # `user ada`, `group vision`, `node n1`, `pool gpu`, `#12`
    detail: str = ""  # values before and after, as text

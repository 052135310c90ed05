"""Check quotas during a decision: guarantees, limits and slot-hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import inf

from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.scheduler.queue import UserQueue
from kernel_backend.scheduler.requests import RequestKey, SlotRequest
from kernel_backend.scheduler.state import ClusterState, Name, UsageByName


class Ledger:
    """Record of the slots that users and groups hold, get or reserve during one decision.

    Only this record is changed, not the cluster state from which it was made.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._more: dict[str, Counter[Name]] = {"user": Counter(), "group": Counter()}
        self._given: dict[str, Counter[Name]] = {"group": Counter(), "member": Counter()}
        both = (("user", cluster.users), ("group", cluster.groups))
        self._guarantees = {
            kind: {name: quota.guarantee for name, quota in accounts.quotas.items() if quota.guarantee}
            for kind, accounts in both
        }
        self._charged: dict[Name, float] = {}  # charged before this decision, by group or (group, user)
        self._spent: dict[tuple[str, str], bool] = {}
        self._most: dict[tuple[str, str], float] = {}  # maximum slots of one trial, by owner and group

    # Shares

    def group_share(self, group: str) -> float:
        """Return a group's charged slot-seconds divided by its weight; the group with the least is served next."""
        charge = self._charge(self._cluster.groups, group, self._given["group"][group])
        return charge / self._cluster.groups.quota(group).weight

    def member_share(self, group: str, owner: str) -> float:
        """Return a user's charged slot-seconds within a group, divided by the user's weight."""
        charge = self._charge(self._cluster.members, (group, owner), self._given["member"][group, owner])
        return charge / self._cluster.users.quota(owner).weight

    def _charge(self, accounts: UsageByName, name: Name, given: int) -> float:
        known = self._charged.get(name)
        if known is None:
            meter, rules = accounts.get(name), self._cluster.rules
            known = meter.decayed(self._cluster.at) + rules.advance * meter.held if meter is not None else 0.0
            self._charged[name] = known
        return known + self._cluster.rules.advance * given

    # Guarantees

    def guaranteed(self, request: SlotRequest) -> bool:
        """Return whether a request fits within the unused part of its owner's or its group's guarantee."""
        return self.left_in_guarantee(request.group, request.owner) >= request.slots

    def has_guarantee(self, line: UserQueue) -> bool:
        """Return whether the owner or the group of a user queue's requests has guaranteed slots left."""
        return self.left_in_guarantee(line.key.group, line.key.owner) > 0

    def left_in_guarantee(self, group: str, owner: str) -> int:
        """Return how many more slots a user in a group may hold within the user's own guarantee or the group's."""
        user = self._guarantees["user"].get(owner)
        of_group = self._guarantees["group"].get(group)
        mine = user - self._held("user", owner) if user else 0
        return max(mine, of_group - self._held("group", group) if of_group else 0)

    # Limits

    def stopped_by(self, request: SlotRequest) -> str | None:
        """Return whose limit or slot-hours a request would exceed: `user`, `group`, or None if neither's."""
        for kind, name, quota in self._both(request):
            if quota.limit is not None and self._held(kind, name) + request.slots > quota.limit:
                return kind
            if quota.most is not None and request.slots > quota.most:
                return kind
            if quota.slot_hours is not None and self.spent(kind, name):
                return kind
        return None

    def never(self, request: SlotRequest) -> bool:
        """Return whether a request is for more slots than the quotas of its owner or group allow for a single trial."""
        return request.slots > self._most_of_trial(request)

    def _most_of_trial(self, request: SlotRequest) -> float:
        whose = request.owner, request.group
        most = self._most.get(whose)
        if most is None:
            mosts = (quota.most for _, _, quota in self._both(request))
            most = self._most[whose] = min((each for each in mosts if each is not None), default=inf)
        return most

    def room(self, request: SlotRequest, held: int) -> float:
        """Return the largest number of slots that quotas of owner and group allow to a gang that holds `held` now."""
        accounts = self._both(request)
        if any(quota.slot_hours is not None and self.spent(kind, name) for kind, name, quota in accounts):
            return held
        left = [quota.limit - self._held(kind, name) for kind, name, quota in accounts if quota.limit is not None]
        return min(held + max(0, min(left)) if left else inf, self._most_of_trial(request))

    def spent(self, kind: str, name: str) -> bool:
        """Return whether an account has used up its slot-hours: its gangs continue to run, but no new ones start."""
        known = self._spent.get((kind, name))
        if known is None:
            accounts = self._accounts(kind)
            window = accounts.quota(name).slot_hours
            meter = accounts.get(name)
            used = meter.within(window.window, self._cluster.at) if window and meter else 0.0
            known = self._spent[kind, name] = window is not None and used >= window.seconds
        return known

    def excess(self) -> Iterable[tuple[str, Name, int]]:
        """Yield (`user` or `group`, name, slots above the limit) for each account that holds more than its limit."""
        for kind in ("group", "user"):
            for name, quota in self._accounts(kind).quotas.items():
                if quota.limit is not None and self._held(kind, name) > quota.limit:
                    yield kind, name, self._held(kind, name) - quota.limit

    # Slots granted or reserved by this decision

    def give(self, request: SlotRequest) -> None:
        """Record that a request has started: count its slots as held, and charge them to its owner and group."""
        self.commit(request)
        self._given["group"][request.group] += request.slots
        self._given["member"][request.group, request.owner] += request.slots

    def commit(self, request: SlotRequest, more: int | None = None) -> None:
        """Count a request's slots (or `more` slots, if given) as held by its owner and group, without charging them.

        Requests that are served later then cannot exceed the limits.
        """
        for kind, name, _ in self._both(request):
            self._more[kind][name] += request.slots if more is None else more

    def hold_back(self, request: SlotRequest) -> None:
        """Hold back a part of the limits for a request that has waited too long, so that others cannot use it up.

        If the owner's own limit does not leave enough for the request, nothing of the group's limit is held back.
        Nothing is held back either if slot-hours are used up, since the account then starts nothing until old use no
        longer counts.
        """
        accounts = self._both(request)
        if any(quota.slot_hours is not None and self.spent(kind, name) for kind, name, quota in accounts):
            return
        for kind, name, quota in accounts:
            stops = quota.limit is not None and self._held(kind, name) + request.slots > quota.limit
            self._more[kind][name] += request.slots
            if stops:
                return

    def _held(self, kind: str, name: Name) -> int:
        meter = self._accounts(kind).get(name)
        return self._more[kind][name] + (meter.held + meter.waiting if meter else 0)

    def _accounts(self, kind: str) -> UsageByName:
        return self._cluster.users if kind == "user" else self._cluster.groups

    def _both(self, request: SlotRequest) -> list[tuple[str, str, Quota]]:
        users, groups = self._cluster.users, self._cluster.groups
        return [
            ("user", request.owner, users.quota(request.owner)),
            ("group", request.group, groups.quota(request.group)),
        ]


def borrowed_slots(cluster: ClusterState) -> set[RequestKey]:
    """Return the keys of gangs whose slots are borrowed: above the guarantee of the owner and above that of the group.

    A guarantee covers an account's oldest gangs first, and of an elastic gang only its least number of slots.
    """
    covered: Counter[tuple[str, str]] = Counter()
    others: set[RequestKey] = set()
    for run in sorted(cluster.runs.values(), key=lambda run: (run.since, run.key)):
        own, slots = False, run.slots - run.surplus
        for kind, name, accounts in (("user", run.owner, cluster.users), ("group", run.group, cluster.groups)):
            if covered[kind, name] + slots <= accounts.quota(name).guarantee:
                covered[kind, name] += slots
                own = True
        if not own:
            others.add(run.key)
    return others

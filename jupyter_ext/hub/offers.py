"""Compute the GPU profiles that the hub offers for a notebook server within the user's quotas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kernel_backend.model.cluster.accounts import Account
from kernel_backend.model.cluster.servers import ServerRequest, profile
from kernel_backend.model.resources import LOCAL
from kernel_backend.model.views.overview import NodeUse

SLOTS, POOL, OWNER = "daylight/slots", "daylight/pool", "daylight/owner"  # labels of pods


class OfferContext(NamedTuple):
    """Accounts whose quotas limit a user, and the nodes with their current use."""

    accounts: Sequence[Account] = ()  # the user's own, and that of their group
    nodes: Sequence[NodeUse] = ()
    known: bool = True  # False if the service did not answer: then only the hub's quotas are known


def most(context: OfferContext, pool: str | None, default: int) -> int:
    """Return the maximum number of slots of one notebook server; `default` if neither quotas nor nodes limit it."""
    quotas = [account.quota.most for account in context.accounts if account.quota.most is not None]
    return min([*quotas, *([_largest(context, pool)] if context.nodes else [])], default=default)


def offers(
    context: OfferContext,
    *,
    resource: str,
    pools: Mapping[str, Mapping[str, str]],
    images: Mapping[str, str],
    default: int,
) -> list[dict[str, Any]]:
    """Return a `profile_list` for KubeSpawner: no GPU (the default), then possible numbers of GPUs in each pool.

    `resource` is the name of the GPU resource, such as `nvidia.com/gpu`. `pools` maps each pool to the labels of its
    nodes, and `images` maps display names to images. `default` is the maximum number of GPUs if neither quotas nor
    nodes limit it. Each profile sets all settings that any profile uses, since the hub reuses a spawner for a user's
    next server.
    """
    labels = {label: None for selector in pools.values() for label in selector}

    def offer(slots: int, pool: str | None, name: str, description: str) -> dict[str, Any]:
        amount = {resource: str(slots) if slots else None}
        said = {SLOTS: str(slots), POOL: pool or LOCAL, OWNER: "{username}"}
        overrides = {
            "extra_resource_limits": amount,
            "extra_resource_guarantees": amount,
            "node_selector": {**labels, **(pools[pool] if pool is not None else {})},
            "extra_labels": said if slots else dict.fromkeys(said),
        }
        choices = {"profile_options": {"image": _images(images)}} if images else {}
        shown = {"slug": profile(slots, pool), "display_name": name, "description": description}
        return shown | {"kubespawner_override": overrides} | choices

    nothing = offer(0, None, "No GPU", "To write code and to submit trainings, which get GPUs of their own.")
    found = [nothing | {"default": True}]
    for pool in pools or [None]:
        where = f" of pool {pool}" if pool is not None else ""
        counts = _counts(most(context, pool, default))
        found += [offer(slots, pool, _gpus(slots) + where, describe(context, slots, pool)) for slots in counts]
    return found


def describe(context: OfferContext, slots: int, pool: str | None) -> str:
    """Return a text for the profile list: whether a server with this many slots may start now, or must wait, and why.

    "" if the service reports no nodes, and no account has a limit.
    """
    if not context.known:
        return "Daylight does not answer just now: how many are free is not known."
    limits = [each for each in map(_left, context.accounts) if each is not None]
    tightest = min(limits, key=lambda each: each.left, default=None)
    free = max((node.slots - node.used for node in _nodes(context, pool)), default=None)
    if tightest is not None and tightest.left < slots:
        return f"Not just now: {tightest}."
    if free is not None and free < slots:
        at_once = f"{free} at once are" if free != 1 else "1 is"
        return f"It would wait: {at_once if free else 'none is'} free{_of(pool)}."
    if tightest is not None:
        return f"{str(tightest)[0].upper()}{str(tightest)[1:]}."
    total = sum(node.slots - node.used for node in _nodes(context, pool))
    return f"{total} {'is' if total == 1 else 'are'} free{_of(pool)}." if context.nodes else ""


def refusal(asked: ServerRequest, context: OfferContext, beside: int = 0) -> str | None:
    """Return why a notebook server may not have the requested slots, with the nearest allowed number; None if it may.

    `asked` is the request. `beside` is the number of slots of the user's other servers according to the hub, which the
    service may not have recorded yet.
    """
    if not asked.slots:
        return None
    wants = f"{_gpus(asked.slots)} requested for the notebook server"
    for account in context.accounts:
        if account.quota.most is not None and asked.slots > account.quota.most:
            return f"{wants}; {_whom(account)} may have {account.quota.most} in one. {_take(account.quota.most)}."
    for account in context.accounts:
        left = _left(account, beside if account.kind == "user" else 0)
        if left is not None and left.left < asked.slots:
            return f"{wants}; {left}. {_take(left.left)}, or end something first."
    for account in context.accounts:
        window = account.quota.slot_hours
        if window is not None and account.use.window is not None and account.use.window >= window.seconds:
            days = f"{window.window / 86400:g} days"
            used = f"{window.hours:g} slot-hours in {days} are used up"
            return f"{wants}; {_whose(account)} {used}. {_take(0)}."
    return None


class _Left(NamedTuple):
    account: Account
    left: int

    def __str__(self) -> str:
        limit = f"{_whose(self.account)} {self.account.quota.limit}"
        return f"{self.left or 'none'} of {limit} {'is' if self.left <= 1 else 'are'} free"


def _left(account: Account, held: int = 0) -> _Left | None:
    """Return how many slots an account's limit leaves, at least 0; None if it has no limit.

    `held` is the number of slots in use as the hub knows it; the service's own number counts if it is larger.
    """
    limit = account.quota.limit
    return None if limit is None else _Left(account, max(0, limit - max(held, account.use.held)))


def _whose(account: Account) -> str:
    return "your" if account.kind == "user" else f"group {account.name}'s"


def _whom(account: Account) -> str:
    return "you" if account.kind == "user" else f"those of group {account.name}"


def _take(slots: int) -> str:
    return f"Take {slots}" if slots == 1 else f"Take {slots} or fewer" if slots else "Take none"


def _gpus(slots: int) -> str:
    return "1 GPU" if slots == 1 else f"{slots} GPUs"


def _counts(most: int) -> list[int]:
    """Return the slot counts to offer: the powers of two up to `most`, and `most` itself."""
    powers = [1 << nth for nth in range(most.bit_length()) if 1 << nth <= most]
    return sorted({*powers, *([most] if most else [])})


def _of(pool: str | None) -> str:
    return f" in pool {pool}" if pool is not None else ""


def _nodes(context: OfferContext, pool: str | None) -> Iterable[NodeUse]:
    return [node for node in context.nodes if (pool is None or node.pool == pool) and node.usable]


def _largest(context: OfferContext, pool: str | None) -> int:
    """Return the number of slots of the largest node in a pool, or of all nodes if `pool` is None; 0 without nodes.

    A server runs on a single node, so it can have no more.
    """
    return max((node.slots for node in context.nodes if pool is None or node.pool == pool), default=0)


def _images(images: Mapping[str, str]) -> dict[str, Any]:
    choices = {
        f"image-{nth}": {"display_name": name, "kubespawner_override": {"image": image}}
        for nth, (name, image) in enumerate(images.items(), 1)
    }
    return {"display_name": "Image", "choices": choices}

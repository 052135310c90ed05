"""Format pools as text for the command line and notebooks."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.cluster.pools import PoolSettings, PoolStatus, changes, parts, spelled
from kernel_backend.text import counted
from kernel_backend.text.cluster import bar

POOL_HEAD = ("pool", "engine", "where", "nodes", "slots in use", "kind", "waiting", "state")


def flag(name: str) -> str:
    """Return the option of `pool add` that sets a field of PoolSettings: `--cpus-per-slot` for `cpus_per_slot`."""
    return f"--{name.replace('_', '-')}"


def pool_row(pool: PoolStatus) -> tuple[str, ...]:
    """Return a pool's row in the table with the head POOL_HEAD."""
    where = ""
    if pool.settings is not None:
        where = _where(pool.settings)
    return (
        pool.name,
        pool.engine,
        where,
        str(pool.nodes),
        f"{bar(pool.used, pool.slots)} {pool.used} of {pool.slots}",
        ", ".join(pool.kinds),
        str(pool.waiting),
        f"{'default, ' if pool.default else ''}{pool.problem or pool.limit or 'ready'}",
    )


def _where(settings: PoolSettings) -> str:
    if settings.engine == "kubernetes":
        return settings.namespace or "default namespace"
    return settings.partition or "default partition"


def allocation_lines(pools: Iterable[PoolStatus]) -> list[str]:
    """Return a line about each allocation (job or pods) that a search keeps between its trials, or waits for."""
    return [_allocation(each) for pool in pools for each in pool.allocations]


def _allocation(each: HeldAllocation) -> str:
    slots = counted(each.slots, "slot")
    what = f"pool {each.pool}: job {each.job or 'being submitted'}, {slots} of search #{each.experiment}"
    if each.closing:
        return f"{what}: is given back ({each.closing})"
    if not each.running:
        return f"{what}: waits in the site's queue"
    until = f" until {time.strftime('%H:%M', time.localtime(each.ends))}" if each.ends is not None else ""
    return f"{what}: kept{until}; {f'{each.gang} runs in it' if each.gang else 'idle'}"


def set_lines(before: PoolStatus | None, after: PoolStatus, program: str) -> list[str]:
    """Return lines about a pool that was added or replaced: what changed, its problem, and how to use it.

    `before` is its earlier status, None for a new pool; `program` is `daylight` or `%dl`.
    """
    old = None if before is None else before.settings
    changed = ", ".join(changes(old, after.settings))
    said = f"pool {after.name}: added, {changed}" if before is None else f"pool {after.name}: {changed or 'as before'}"
    lines = [said]
    if after.problem:
        lines.append(f"it cannot be used now: {after.problem}; see {program} pool")
    lines.append(f"to train there: %%dlsubmit --pool {after.name}")
    return lines


def removed_lines(removed: PoolStatus, command: str) -> list[str]:
    """Return lines about a pool that was removed, with the command that adds it again."""
    lines = [f"pool {removed.name}: removed; what has been trained there stays"]
    if removed.settings is not None:
        lines.append(f"to take it back: {command} add {removed.name} {options(removed.settings)}")
    return lines


def options(settings: PoolSettings) -> str:
    """Return the options of `pool add` that result in these settings."""
    given = settings.model_dump(exclude_defaults=True)
    each = ((name, part) for name, value in given.items() for part in parts(value))
    return " ".join(_option(name, spelled(part)) for name, part in each)


def _option(name: str, value: str) -> str:
    return f"{flag(name)}={value}" if value.startswith("-") else f"{flag(name)} {value}"

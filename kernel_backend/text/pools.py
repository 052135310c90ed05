"""Format pools as text for the command line and notebooks."""

from __future__ import annotations

from kernel_backend.model.cluster.pools import PoolSettings, PoolStatus, changes, spelled
from kernel_backend.text.cluster import bar

POOL_HEAD = ("pool", "engine", "where", "nodes", "slots in use", "kind", "waiting", "state")


def flag(name: str) -> str:
    """Return the option of `pool add` that sets a field of PoolSettings."""
    return f"--{name.replace('_', '-')}"


def pool_row(pool: PoolStatus) -> tuple[str, ...]:
    """Return the row of a pool, under POOL_HEAD."""
    where = ""
    if pool.settings is not None:
        where = pool.settings.partition or "default partition"
    return (
        pool.name,
        pool.engine,
        where,
        str(pool.nodes),
        f"{bar(pool.used, pool.slots)} {pool.used} of {pool.slots}",
        ", ".join(pool.kinds),
        str(pool.waiting),
        pool.problem or "ready",
    )


def set_lines(before: PoolStatus | None, after: PoolStatus, program: str) -> list[str]:
    """Return lines about a pool that was added or replaced: what changed, its problem, and how to use it."""
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
    """Return the options of `pool add` that give these settings."""
    given = settings.model_dump(exclude_defaults=True)
    each = ((name, part) for name, value in given.items() for part in (value if name == "extra" else (value,)))
    return " ".join(_option(name, spelled(part)) for name, part in each)


def _option(name: str, value: str) -> str:
    return f"{flag(name)}={value}" if value.startswith("-") else f"{flag(name)} {value}"

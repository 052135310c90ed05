"""Format the state of a shared cluster as text: quotas, queue, nodes and audit log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kernel_backend.model.cluster.accounts import Account, AccountKind, AuditEntry, UseOverTime, Waiting
from kernel_backend.model.cluster.quota_settings import label, spelled
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.experiment import FIRST
from kernel_backend.model.sizes import size
from kernel_backend.model.views.overview import NodeRun, NodeUse
from kernel_backend.text import counted, duration, estimate_text, number

BAR = 8  # characters of a bar
_LEVELS = " ▁▂▃▄▅▆▇█"
_FLAGS = {name: f"--{label(name)}" for name in Quota.model_fields}

QUOTA_HEAD = ("account", "slots in use", "guarantee", "slot-hours", "per trial", "priority", "weight", "storage")
QUEUE_HEAD = ("place", "experiment", "who", "slots", "priority", "waiting", "why")
NODE_HEAD = ("node", "pool", "kind", "slots in use", "by whom", "state", "devices")
AUDIT_HEAD = ("no.", "when", "who", "what", "on", "detail")


def bar(part: float, whole: float) -> str:
    """Return a bar that shows how much of `whole` is used, such as `████░░░░`.

    Any use fills at least one character, and more than `whole` fills all.
    """
    filled = round(BAR * min(part / whole, 1.0)) if whole > 0 else BAR
    filled = max(filled, 1) if part > 0 else filled if whole <= 0 else 0
    return "█" * filled + "░" * (BAR - filled)


def quota_row(account: Account) -> tuple[str, ...]:
    """Return an account's row in the table with the head QUOTA_HEAD.

    A star marks numbers that an admin has set in this service, in place of the hub's.
    """
    quota, use, here = account.quota, account.use, account.changed

    def starred(name: str, text: str) -> str:
        return f"{text} *" if name in here and text else text

    limit = quota.limit
    held = f"{use.held}, no limit" if limit is None else f"{bar(use.held, limit)} {use.held} of {limit}"
    return (
        f"{account.kind} {account.name}",
        starred("limit", held),
        starred("guarantee", str(quota.guarantee) if quota.guarantee else "none" if "guarantee" in here else ""),
        starred("slot_hours", _slot_hours(account)),
        starred("max_slots_per_trial", _most(quota, "max_slots_per_trial" in here)),
        starred("priority", str(quota.priority)),
        starred("weight", number(quota.weight)),
        starred("storage", _storage(quota, "storage" in here)),
    )


def _slot_hours(account: Account) -> str:
    allowed = account.quota.slot_hours
    if allowed is None:
        return "no limit" if "slot_hours" in account.changed else ""
    used = round((account.use.window or 0.0) / 3600, 1)
    return f"{bar(used, allowed.hours)} {number(used)} of {allowed}"


def _most(quota: Quota, here: bool) -> str:
    most = quota.max_slots_per_trial
    return f"up to {most}" if most is not None else "no limit" if here else ""


def _storage(quota: Quota, here: bool) -> str:
    return f"up to {size(quota.storage)}" if quota.storage is not None else "no limit" if here else ""


def quota_notes(accounts: Sequence[Account]) -> list[str]:
    """Return the notes below a table of quotas: what a star means, and warnings about single quotas."""
    notes = []
    if any(account.changed for account in accounts):
        notes.append("* set here; what the hub gives counts for the others")
    whose: dict[str, list[Account]] = {}
    for each in accounts:
        for warning in each.warnings:
            whose.setdefault(warning, []).append(each)
    for warning, theirs in whose.items():
        about = f"{theirs[0].kind} {theirs[0].name}: " if len(theirs) == 1 < len(accounts) else ""
        notes.append(f"note: {about}{warning}")
    return notes


def account_lines(account: Account, use: UseOverTime) -> list[str]:
    """Return lines about one account: its members (of a user: groups), the hub's quota, and its recent use of slots."""
    lines = []
    if account.members:
        lines.append(f"{'members' if account.kind == 'group' else 'groups'}: {', '.join(account.members)}")
    if account.changed and account.given is not None:
        words = (f"{label(name)} {spelled(name, account.given)}" for name in account.changed)
        lines.append(f"the hub gives {', '.join(words)}")
    held = [round(each, 1) for each in use.held]
    if any(held):
        days = duration(use.at[-1] - use.at[0]).removesuffix(" 00 h")
        lines.append(f"last {days}: {sparkline(held, account.quota.limit)}  up to {number(max(held))} slots")
    return lines


def sparkline(values: Sequence[float], top: float | None = None) -> str:
    """Draw values from 0 to `top` (at least the largest value) as a line of bars `▁▃█`; all above 0 are visible."""
    top = max([top or 0.0, *values]) or 1.0
    levels = (round((len(_LEVELS) - 1) * value / top) for value in values)
    return "".join(_LEVELS[max(level, 1 if value > 0 else 0)] for level, value in zip(levels, values, strict=True))


def changed_lines(before: Account, after: Account, command: str) -> list[str]:
    """Return lines on what has changed in an account's quota, with the command line that reverts it.

    `command` is the beginning of that line, such as `daylight quota`.
    """
    names = [name for name in Quota.model_fields if getattr(before.quota, name) != getattr(after.quota, name)]
    who = f"{after.kind} {after.name}"
    words = (f"{label(name)} {spelled(name, before.quota)} -> {spelled(name, after.quota)}" for name in names)
    same = [label(name) for name in _differ(before, after) if name not in names]
    said = ", ".join(words)
    if not names:
        said = f"as before, except for who has set the number: {', '.join(same)}" if same else "nothing has changed"
    lines = [f"{who}: {said}"]
    lines += [f"note: {warning}" for warning in after.warnings]
    undo = undo_text(before, after, command)
    return [*lines, f"to take it back: {undo}"] if undo else lines


def undo_text(before: Account, after: Account, command: str) -> str:
    """Return the command line that reverts an account's quota from `after` to `before`; "" if both are equal.

    It begins with `command`, such as `daylight quota`.
    """
    differ = _differ(before, after)
    given = [name for name in differ if name in before.changed]
    cleared = [name for name in differ if name not in before.changed]
    who = f"{after.kind} {quoted(after.name)}"
    parts = []
    if given:
        words = " ".join(f"{_FLAGS[name]} {spelled(name, before.quota)}" for name in given)
        parts.append(f"{command} set {who} {words}")
    if cleared:
        parts.append(f"{command} clear {who} {' '.join(_FLAGS[name] for name in cleared)}")
    return " && ".join(parts)


def quoted(name: str) -> str:
    """Return a name, quoted for a command line if needed."""
    plain = name and all(letter.isalnum() or letter in "@._-+/" for letter in name) and not name.startswith("-")
    return name if plain else "'" + name.replace("'", "'\\''") + "'"


def _differ(before: Account, after: Account) -> list[str]:
    """Return the names of those fields of a quota that an admin has set, changed or reset between the two states."""

    def setting(account: Account, name: str) -> tuple[bool, Any]:
        return name in account.changed, account.changed.get(name)

    return [name for name in Quota.model_fields if setting(before, name) != setting(after, name)]


def queue_head(queue: Sequence[Waiting]) -> tuple[str, ...]:
    """Return the column names for `queue_rows`: QUEUE_HEAD, preceded by `pool` if there are several pools."""
    return ("pool", *QUEUE_HEAD) if _pools(queue) > 1 else QUEUE_HEAD


def queue_rows(queue: Sequence[Waiting], now: float) -> list[tuple[str, ...]]:
    """Return the rows of the queue, in order; requests that the user may not see show only the group."""
    several = _pools(queue) > 1
    rows = [_queue_row(each, now) for each in queue]
    return [(each.pool, *row) for each, row in zip(queue, rows, strict=True)] if several else rows


def _queue_row(each: Waiting, now: float) -> tuple[str, ...]:
    trial = f".{each.trial}" if each.trial is not None and each.trial > 1 else ""
    what = "" if each.experiment is None else f"#{each.experiment}{trial} {each.name or ''}".strip()
    why = []
    if each.wait is not None:
        why.append(each.wait.reason)
        why.append(estimate_text(each.wait))
    return (
        str(each.place),
        what,
        whose(each.owner, each.group),
        str(each.slots),
        priority_text(each.priority),
        duration(now - each.queued_at),
        "; ".join(part for part in why if part),
    )


def _pools(queue: Iterable[Waiting]) -> int:
    return len({each.pool for each in queue})


def priority_text(priority: int) -> str:
    """Format a priority: `5`, or `first` for a request that an admin put ahead of all others."""
    return "first" if priority >= FIRST else str(priority)


def whose(owner: str, group: str) -> str:
    """Format an experiment's owner: `dave (vision)`; `a user of vision` if the name is hidden, or `another user`."""
    if not owner:
        return f"a user of {group}" if group else "another user"
    return owner if owner == group else f"{owner} ({group})"


def node_row(node: NodeUse, now: float) -> tuple[str, ...]:
    """Return a node's row in the table with the head NODE_HEAD."""
    held = f"{bar(node.used, node.slots)} {node.used} of {node.slots}"
    by_whom = ", ".join(_run(each, now) for each in node.runs)
    return node.name, node.pool, node.kind, held, by_whom, node_state(node), _counted_names(node.devices)


def node_state(node: NodeUse) -> str:
    """Format the state of a node: `ready`, `suspect`, `drained` or `away`, with the engine's own term if that differs.

    Examples
    --------
    >>> node_state(NodeUse(name="n1", kind="cpu", slots=1, used=0, healthy=False, state="down*"))
    'away (down*)'
    """
    suspect = node.suspicion is not None and node.suspicion.left_out
    word = "drained" if node.drained else "away" if not node.healthy else "suspect" if suspect else "ready"
    return f"{word} ({node.state})" if node.state and node.state != word else word


def node_notes(nodes: Sequence[NodeUse], command: str, now: float) -> list[str]:
    """Return lines on why nodes cannot be used, and for admins the commands that trust or exclude a suspect node.

    `command` is the beginning of these command lines, such as `daylight nodes`.
    """
    found = [f"{node.name}: {why}" for node in nodes for why in _why(node, now)]
    suspect = next((quoted(node.name) for node in nodes if node.suspicion is not None), None)
    if suspect is not None:
        trust, keep = f"{command} undrain {suspect}", f"{command} drain {suspect}"
        found.append(f"for admins: {trust} trusts it again, {keep} keeps it out")
    return found


def _why(node: NodeUse, now: float) -> Iterator[str]:
    if node.reason:
        yield node.reason
    if (suspicion := node.suspicion) is not None:
        used = "left out" if suspicion.left_out else "suspect, but used as half of its pool is left out,"
        yield f"{used} for {duration(max(0.0, suspicion.until - now))} more: {suspicion.reason}"


def _run(run: NodeRun, now: float) -> str:
    if run.outside:
        return f"{run.outside} {run.slots}"
    if run.server is not None:
        return f"{run.owner} {run.slots} (notebook server{_idle(run, now)})"
    if run.experiment is None:
        return f"{whose(run.owner, run.group)} {run.slots}"
    trial = f".{run.trial}" if run.trial is not None and run.trial > 1 else ""
    return f"{run.owner} {run.slots} (#{run.experiment}{trial}{_idle(run, now)})"


def _idle(run: NodeRun, now: float) -> str:
    """Format how long a notebook server or gang has been idle, and when it may be stopped to free its slots.

    Example: `, idle for 40 min 00 s, may be stopped for its slots now`.
    """
    idle = now - run.last_activity if run.last_activity is not None else 0.0
    said = f", idle for {duration(idle)}" if idle >= 60 else ""
    if run.take_back_at is not None:
        left = run.take_back_at - now
        said += ", may be stopped for its slots" + (f" in {duration(left)}" if left > 0 else " now")
    return said


def _counted_names(names: Sequence[str]) -> str:
    counts: Mapping[str, int] = {name: names.count(name) for name in dict.fromkeys(names)}
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())


def drained_lines(node: NodeUse, command: str, now: float) -> list[str]:
    """Return lines about a node after it was drained or undrained, and the command line that reverts this.

    `command` is the beginning of that line, such as `daylight nodes`.
    """
    if not node.drained:
        said = f"{node.name}: gangs are started there again"
        return [said, f"to take it back: {command} drain {quoted(node.name)}"]
    held = sum(run.slots for run in node.runs)
    by_whom = ", ".join(_run(each, now) for each in node.runs)
    running = f"{counted(held, 'slot')} in use there: {by_whom}, until they end"
    goes_on = f"; {running}" if held else ""
    said = f"{node.name}: drained, nothing new is started there{goes_on}"
    return [said, f"to take it back: {command} undrain {quoted(node.name)}"]


def audit_row(entry: AuditEntry) -> tuple[str, ...]:
    """Return an audit entry's row in the table with the head AUDIT_HEAD; times are in this machine's time zone."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at))
    return str(entry.seq), when, entry.who, entry.act, entry.on, entry.detail


def set_numbers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `quota set` as fields of Quota: numbers are parsed, other texts stay unchanged.

    Options that are None are left out. Example: `{"limit": "8", "slot_hours": "500/7d", "weight": None}` becomes
    `{"limit": 8, "slot_hours": "500/7d"}`.
    """
    return {name: _number(str(options[name])) for name in Quota.model_fields if options.get(name) is not None}


def _number(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def account_kind(text: str) -> AccountKind:
    """Return the kind of account, `user` or `group`; raises ValueError for another word."""
    if text == "user":
        return "user"
    if text == "group":
        return "group"
    raise ValueError(text)

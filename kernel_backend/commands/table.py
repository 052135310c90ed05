"""List the verbs that `daylight` and `%dl` share, and write the help that lists them in groups."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping

from kernel_backend.commands import (
    artifacts,
    checkpoints,
    cluster,
    compare,
    deletion,
    disk,
    environment,
    experiments,
    labels,
    pools,
    rerun,
    search,
    times,
    usage,
    webhooks,
)
from kernel_backend.commands.exports import export
from kernel_backend.commands.predictions import verbs as predictions
from kernel_backend.commands.register import verbs as register
from kernel_backend.commands.verb import Verb

VERBS: Mapping[str, Verb] = {
    verb.name: verb
    for verb in (
        *experiments.LOOK,
        times.PROFILE,
        times.TOP,
        times.UTILISATION,
        export.EXPORT,
        *labels.VERBS,
        environment.ENV,
        compare.DIFF,
        rerun.RERUN,
        rerun.CONTINUE,
        rerun.VERIFY,
        compare.HISTORY,
        *search.VERBS,
        *checkpoints.VERBS,
        *register.VERBS,
        *predictions.VERBS,
        artifacts.ARTIFACTS,
        artifacts.CELL_VALUES,
        *cluster.VERBS,
        usage.USAGE,
        pools.POOL,
        webhooks.WEBHOOK,
        *experiments.CHANGE,
        *deletion.VERBS,
        disk.DU,
    )
}
# All verbs, also those that only the terminal has, by what the user wants to do.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Run": ("submit", "rerun", "continue", "verify", "predict", "evaluate"),
    "Watch": ("list", "show", "logs", "metrics", "profile", "top", "utilisation", "queue", "nodes", "open"),
    "Steer": (
        *("pause", "resume", "stop", "move", "promote", "prune", "extend"),
        *("rename", "note", "tag"),
    ),
    "Compare": (
        *("best", "trials", "diff", "history", "facts", "source", "env"),
        *("values", "artifacts", "predictions", "checkpoints", "export"),
    ),
    "Register": ("register", "models", "model"),
    "Manage": (
        *("checkpoint", "gc", "delete", "undelete", "du", "quota", "usage", "pool", "audit", "webhook"),
        *("serve", "backup", "restore", "db", "doctor", "cluster", "completion"),
    ),
}


def grouped(verbs: Collection[Verb]) -> Iterator[tuple[str, list[Verb]]]:
    """Yield the name of each group that has some of these verbs, with these in the group's order."""
    by_name = {verb.name: verb for verb in verbs}
    for group, names in GROUPS.items():
        if found := [by_name[name] for name in names if name in by_name]:
            yield group, found


def listing(verbs: Collection[Verb], label: Callable[[Verb], str], width: int) -> list[str]:
    """Return the lines that list verbs in their groups, each as its `label` and its help, in `width` characters."""
    column = max(len(label(verb)) for verb in verbs) + 4
    lines: list[str] = []
    for group, found in grouped(verbs):
        lines += ["", group]
        for verb in found:
            first, after = f"  {label(verb)}".ljust(column), " " * column
            lines += textwrap.wrap(verb.help, width, initial_indent=first, subsequent_indent=after)
    return lines

"""Compare two lists of declared files: files added, removed or changed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

NAMED = 3  # names in a sentence


class Changes(NamedTuple):
    """Differences between two lists of files: names of files added, removed and changed, sorted."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


def read_list(data: bytes) -> dict[str, tuple[str, ...]]:
    """Return (size, digest) of each file in a stored list, by name; the list has one tab-separated line per file."""
    rows = (line.split("\t") for line in data.decode().split("\n") if line)
    return {row[0]: tuple(row[1:]) for row in rows}


def changes(before: Mapping[str, Hashable], after: Mapping[str, Hashable]) -> Changes:
    """Return which keys were added, removed, or have other values in `after` than in `before`."""
    return Changes(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(sorted(name for name in before.keys() & after.keys() if before[name] != after[name])),
    )


def changes_text(found: Changes, noun: str = "file") -> str:
    """Return a sentence on changes: `112 files were added (img_0931.png, ...), 1 has other bytes (a.csv)`.

    An `object` of a store, whose bytes are not known, was replaced. Returns "" if there are no changes.
    """
    other = ("has other bytes", "have other bytes") if noun == "file" else ("was replaced", "were replaced")
    parts = [
        _part(found.added, noun, "was added", "were added"),
        _part(found.removed, noun, "is gone", "are gone"),
        _part(found.changed, noun, *other),
    ]
    return ", ".join(filter(None, parts))


def changes_lines(found: Changes) -> tuple[str, ...]:
    """Return a line for each file: `+ new`, `- gone`, `~ changed`."""
    marked = (("+", found.added), ("-", found.removed), ("~", found.changed))
    return tuple(f"{mark} {name}" for mark, names in marked for name in names)


def versions_lines(
    found: Changes, before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """Return a line for each object, first for those replaced, with both versions: `~ a.jpg: 5d41402a, now 7d793037`.

    `before` and `after` are the lists that were compared, with the version as the last value of each object.
    """
    replaced = tuple(f"~ {name}: {before[name][-1]}, now {after[name][-1]}" for name in found.changed)
    return replaced + changes_lines(found._replace(changed=()))


def _part(names: Sequence[str], noun: str, one: str, many: str) -> str:
    if not names:
        return ""
    shown = ", ".join([*names[:NAMED], *(["..."] if len(names) > NAMED else [])])
    return f"{len(names):,} {noun}{'' if len(names) == 1 else 's'} {one if len(names) == 1 else many} ({shown})"

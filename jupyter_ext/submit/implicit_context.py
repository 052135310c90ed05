"""Collect files that a snapshot includes although the user did not name them, as results may depend on them.

These are the sources of editable packages, and the uncommitted changes in git.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jupyter_ext.project.ignored import Ignored
from kernel_backend.model.sizes import size
from kernel_backend.model.snapshot import EDITABLE, GIT_DIFF
from kernel_backend.secret_scan import find_secrets, is_code
from kernel_backend.snapshots import git
from kernel_backend.snapshots.environment import beside

_BEGINNING = 8192  # bytes that distinguish text from binary data
_PART = re.compile(r"^(?=diff --git )", re.MULTILINE)
_MARK = re.compile(r"^[-+ ]", re.MULTILINE)


class ArchiveBudget(NamedTuple):
    """Remaining capacity of a snapshot: number of files, and bytes."""

    members: int
    bytes: int


@dataclass(frozen=True)
class ImplicitContext:
    """Files that a snapshot includes although the user did not name them, and warnings about files left out."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def collect_context(
    folder: Path, known: Sequence[str], budget: ArchiveBudget, mapped: Sequence[str] = ()
) -> ImplicitContext:
    """Return the sources of editable packages, and the git diff of `folder` against its commit.

    Files that seem to contain a secret, or one of the `known` secrets, are left out, as the user did not name them.
    Files beyond the capacity `budget`, and in the diff ignored files and those at the paths `mapped` of `folder`, in
    whose place the job has remote data, are left out as well.
    """
    files, warnings = {}, []
    ignored, remote = Ignored(git.root(folder) or folder), [folder / each for each in mapped]

    def left_out(path: Path) -> bool:
        return ignored.file(path) or any(path.is_relative_to(each) for each in remote)

    for name, data in beside(folder, left_out).items():
        found = next(_secrets(name, data, known), None)
        if found is not None:
            line, kind = found
            warnings.append(f"{name} is not kept with the snapshot: line {line} holds what looks like {kind}")
        else:
            files[name] = data
    return _fitting(files, warnings, budget)


def _secrets(name: str, data: bytes, known: Sequence[str]) -> Iterator[tuple[int, str]]:
    if b"\0" in data[:_BEGINNING]:
        return
    text = data.decode(errors="replace")
    if name != GIT_DIFF:
        yield from find_secrets(text, known, is_code(name))
        return
    above = 0
    for part in _PART.split(text):  # a file each
        path = part.partition("\n")[0].strip('"')
        for line, kind in find_secrets(_MARK.sub("", part), known, is_code(path)):
            yield above + line, kind
        above += part.count("\n")


def _fitting(files: Mapping[str, bytes], warnings: list[str], budget: ArchiveBudget) -> ImplicitContext:
    """Return the files that fit into the budget, smallest first; an editable package is included as a whole or not.

    A sentence about each file or package that is left out is added to `warnings`.
    """
    groups: dict[str, dict[str, bytes]] = {}
    for name, data in files.items():
        parts = name.split("/")
        groups.setdefault(parts[1] if parts[0] == EDITABLE else name, {})[name] = data
    kept: dict[str, bytes] = {}
    for of, members in sorted(groups.items(), key=lambda group: len(group[1])):
        count = sum(map(len, members.values()))
        if len(kept) + len(members) <= budget.members and sum(map(len, kept.values())) + count <= budget.bytes:
            kept |= members
        else:
            what = (
                of if of in members else f"the code of {of}, an editable install ({len(members)} files, {size(count)}),"
            )
            warnings.append(f"{what} is not kept with the snapshot: all that travels would be more than one holds")
    return ImplicitContext({name: data for name, data in files.items() if name in kept}, tuple(warnings))

"""The state of a git checkout: its commit, and how its files differ from that."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

_SECONDS = 1.0  # a slow network file system must not hold up a submission
DIFF_BYTES = 4 * 2**20


def commit(folder: Path) -> tuple[str | None, bool | None]:
    """The commit and whether tracked files differ from it; (None, None) outside of git, or where git takes too long."""
    said = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    if said is None:
        return None, None
    text = said.decode(errors="replace")
    found = re.search(r"^# branch\.oid ([0-9a-f]+)$", text, re.MULTILINE)
    dirty = any(not line.startswith("#") for line in text.splitlines())
    return (found[1] if found else None), dirty


def root(folder: Path) -> Path | None:
    """The checkout that a folder is in."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def diff(folder: Path, ignored: Callable[[Path], bool] = lambda path: False) -> str | None:
    """What `git apply` takes to make the commit into the files as they are, after a line for each untracked file.

    Nothing is said of files that are `ignored`. None where there is nothing to say, outside of git, or where git
    takes too long. Beyond DIFF_BYTES a sentence stands in place of it.
    """
    top = root(folder)
    names = _names(folder, "diff", "HEAD", "--name-only", "--no-renames", "--no-relative")
    untracked = _names(folder, "ls-files", "--others", "--exclude-standard", "--full-name", tail=(":/",))
    if top is None or names is None or untracked is None:
        return None
    stays = [f":(top,exclude,literal){name}" for name in names if ignored(top / name)]
    shown = ("--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative")
    as_usual = ("--src-prefix=a/", "--dst-prefix=b/", "--unified=3")  # whatever a person's settings say
    changed = _git(folder, "diff", "HEAD", *shown, *as_usual, "--", ":/", *stays)
    if changed is None:
        return None
    told = "".join(f"untracked: {name}\n" for name in untracked if not ignored(top / name))
    if len(told) + len(changed) > DIFF_BYTES:
        size = (len(told) + len(changed)) / 2**20
        return f"The difference from the commit has {size:.1f} MiB, more than {DIFF_BYTES >> 20}: it was left out.\n"
    return told + changed.decode(errors="replace") or None


def _names(folder: Path, *arguments: str, tail: tuple[str, ...] = ()) -> list[str] | None:
    said = _git(folder, *arguments, "-z", *tail)
    return None if said is None else [os.fsdecode(name) for name in said.split(b"\0") if name]


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git prints; None outside of a checkout, where it fails, and where it takes too long."""
    if root(folder) is None:
        return None
    try:
        answer = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            capture_output=True,
            timeout=_SECONDS,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None

"""Read the state of a git checkout: its commit, and the diff of its files."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

_SECONDS = 1.0  # longer runs, as on slow network file systems, must not delay a submission
DIFF_BYTES = 4 * 2**20


def commit(folder: Path) -> tuple[str | None, bool | None]:
    """Return the hash of the current commit, and whether tracked files differ from it.

    Returns (None, None) outside of git or on timeout.
    """
    said = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    if said is None:
        return None, None
    text = said.decode(errors="replace")
    found = re.search(r"^# branch\.oid ([0-9a-f]+)$", text, re.MULTILINE)
    dirty = any(not line.startswith("#") for line in text.splitlines())
    return (found[1] if found else None), dirty


def root(folder: Path) -> Path | None:
    """Return the root of the git checkout that contains a folder; None if there is none."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def diff(folder: Path, ignored: Callable[[Path], bool] = lambda path: False) -> str | None:
    """Return a diff for `git apply` from the commit to the current files, after a line for each untracked file.

    Files for which `ignored` returns True are left out. Returns None if nothing differs, outside of git, or on timeout.
    A diff of more than DIFF_BYTES is replaced by a sentence that says so.
    """
    top = root(folder)
    names = _names(folder, "diff", "HEAD", "--name-only", "--no-renames", "--no-relative")
    untracked = _names(folder, "ls-files", "--others", "--exclude-standard", "--full-name", tail=(":/",))
    if top is None or names is None or untracked is None:
        return None
    stays = [f":(top,exclude,literal){name}" for name in names if ignored(top / name)]
    # In the format of `git apply`, whatever the user's git configuration.
    plain = ("--src-prefix=a/", "--dst-prefix=b/", "--unified=3")
    shown = ("--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative", *plain)
    changed = _git(folder, "diff", "HEAD", *shown, "--", ":/", *stays)
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
    """Return the output of a git command; None outside of a checkout, on failure, or on timeout."""
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

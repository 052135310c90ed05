"""The state of a git checkout: its commit, and how its files differ from that."""

from __future__ import annotations

import os
import re
import subprocess
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


def diff(folder: Path) -> str | None:
    """What `git apply` takes to make the commit into the files as they are, after a line for each untracked file.

    None where there is nothing to say, outside of git, or where git takes too long. Beyond DIFF_BYTES a sentence
    stands in place of it.
    """
    changed = _git(folder, "diff", "HEAD", "--binary", "--no-color", "--no-ext-diff", "--no-textconv")
    untracked = _git(folder, "ls-files", "--others", "--exclude-standard", "--full-name", "-z", ":/")
    if changed is None or untracked is None:
        return None
    names = [name for name in untracked.decode(errors="replace").split("\0") if name]
    told = "".join(f"untracked: {name}\n" for name in names)
    if len(told) + len(changed) > DIFF_BYTES:
        size = (len(told) + len(changed)) / 2**20
        return f"The difference from the commit has {size:.1f} MiB, more than {DIFF_BYTES >> 20}: it was left out.\n"
    return told + changed.decode(errors="replace") or None


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git prints; None outside of a checkout, where it fails, and where it takes too long."""
    if not any((each / ".git").exists() for each in [folder, *folder.parents]):
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

"""Apply the rules of `.gitignore` and `.daylightignore`, and exclude files that no snapshot may include."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pathspec import GitIgnoreSpec

_KEYS = {"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"}
_SECRETS = {".env", ".env.local", ".netrc", ".pypirc", ".pgpass", ".git-credentials", *_KEYS}
NEVER = frozenset({".git", "__pycache__", ".venv", "node_modules", ".ipynb_checkpoints", *_SECRETS})
_RULES = (".gitignore", ".daylightignore")  # rules of the second file take precedence


class Ignored:
    """Ignore rules of a folder and its subfolders; as in git, those of a deeper folder take precedence."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rules = cache(_rules)

    def __call__(self, path: Path, folder: bool) -> bool:
        """Return whether the rules exclude a path below the root; `folder` tells whether it is a folder."""
        if path.name in NEVER or (folder and (path / "pyvenv.cfg").is_file()):
            return True
        for above in path.parents:
            if (rules := self._rules(above)) is not None:
                name = path.relative_to(above).as_posix()
                verdict = rules.check_file(f"{name}/" if folder else name).include
                if verdict is not None:
                    return verdict
            if above == self._root:
                break
        return False

    def file(self, path: Path) -> bool:
        """Return whether the rules exclude a file, by its own path or by one of its parent folders."""
        above = [each for each in path.parents if each != self._root and each.is_relative_to(self._root)]
        return self(path, False) or any(self(each, True) for each in above)


def _rules(folder: Path) -> GitIgnoreSpec | None:
    lines: list[str] = []
    for name in _RULES:
        try:
            lines += (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:  # no such file
            continue
    kept = [line for line in lines if _readable(line)]
    return GitIgnoreSpec.from_lines(kept) if kept else None


def _readable(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:  # a pattern that git ignores, too
        return False
    return True

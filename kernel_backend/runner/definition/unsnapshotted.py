"""Find modules that were imported from the project's folder, not from the snapshot: a rerun may not find them there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from kernel_backend.installed_code import is_of_package
from kernel_backend.model.frames import OURS
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.values import listed

_NAMED = 5  # modules named in the warning
_OURS = ("kernel_backend", "jupyter_ext", "daylight")


def left_behind(code: Path, cwd: Path, snapshot: Snapshot | None) -> str | None:
    """Return a warning about modules imported from the project's folder instead of the snapshot; None without any.

    `code` is the snapshot's folder and `cwd` the job's working folder. A rerun may lack such modules or find other
    versions.
    """
    root = Path(snapshot.project.root) if snapshot and snapshot.project else cwd
    found = sorted(_imported_from({root, cwd}, code))
    if not found:
        return None
    modules = listed([f"{name} ({_shown(path, cwd)})" for name, path in found], _NAMED)
    return (
        f"imported from the project folder, though not in the snapshot: {modules}. A rerun may lack it or find "
        f"another: submit with --include {_shown(found[0][1], cwd)}"
    )


def _imported_from(folders: set[Path], code: Path) -> Iterator[tuple[str, Path]]:
    inside = tuple(os.path.join(folder, "") for folder in folders)
    for name, module in sys.modules.copy().items():
        file = getattr(module, "__file__", None)
        # A rank has thousands of modules: only of the few that are left is a Path made, which takes longer.
        if not isinstance(file, str) or not file.startswith(inside) or is_of_package(file):
            continue
        path = Path(file)
        ours = path.is_relative_to(OURS.parent) and name.split(".")[0] in _OURS
        if not (ours or path.is_relative_to(code) or _is_python(path)):
            yield name, path


def _is_python(path: Path) -> bool:
    """Return True if the file belongs to a Python installation, which may lie inside the project folder."""
    return any(path.is_relative_to(Path(prefix) / "lib") for prefix in (sys.prefix, sys.base_prefix))


def _shown(path: Path, cwd: Path) -> str:
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)

"""The definition as a module: imported by the name `definition`, so that its classes can be pickled."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from kernel_backend.model import versions
from kernel_backend.model.definition import Definition
from kernel_backend.model.parse import parse
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.snapshots.shipped import editable_folders, lead, shipped_folders

MODULE = "definition"


class Loaded(NamedTuple):
    """The module, what its source says about itself, and what its snapshot does."""

    module: ModuleType
    definition: Definition
    snapshot: Snapshot | None = None


def read_snapshot(code: Path) -> Snapshot | None:
    """The snapshot's own description; None where the folder has none."""
    try:
        return versions.read(Snapshot, (code / "snapshot.json").read_bytes())
    except FileNotFoundError:
        return None


def load(code: Path, cwd: Path) -> Loaded:
    """Parse and import `<code>/definition.py`; `code`, the folders of shipped modules and `cwd` lead the module path.

    Raises InvalidDefinition, and whatever the cell's own statements raise.
    """
    path = code / f"{MODULE}.py"
    snapshot = read_snapshot(code)
    source = path.read_text()
    definition = parse(source, snapshot.roles_from, snapshot.contract) if snapshot else parse(source)
    folders = shipped_folders(code, snapshot.project if snapshot else None)
    lead(folders)
    ours = [str(code), *map(str, folders), str(cwd)]
    _put_first(ours)
    sys.path.extend(map(str, editable_folders(code)))
    module = _executed(path)
    # Processes that are spawned later are given the path as it is now, whatever the definition put in front of it.
    _put_first(ours)
    return Loaded(module, definition, snapshot)


def _executed(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module  # before it runs: what it pickles or imports may ask for it
    spec.loader.exec_module(module)
    return module


def _put_first(folders: list[str]) -> None:
    sys.path[:] = folders + [entry for entry in sys.path if entry not in (*folders, "")]

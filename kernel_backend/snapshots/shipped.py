"""Import modules from a snapshot rather than others of the same names, and choose an attempt's working folder."""

from __future__ import annotations

import filecmp
import os
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from kernel_backend.model import versions
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.snapshot import DESCRIPTION, EDITABLE, NODE_LINK, PROJECT, Project, Snapshot
from kernel_backend.model.values import listed
from kernel_backend.overlay import ENTRIES, can_be_led, overlay, overlay_of

_NAMED = 3  # files that a sentence names
_NOT_READ = (".py", ".ipynb")  # modules are imported from the snapshot; notebooks change with every save


def shipped_folders(code: Path, project: Project | None) -> list[Path]:
    """Return the folders of an unpacked snapshot's project, which come first on sys.path."""
    return [code / PROJECT / path for path in project.paths] if project else []


def editable_folders(code: Path) -> list[Path]:
    """Return the folders of editable packages in an unpacked snapshot, which come last on sys.path."""
    return sorted((code / EDITABLE).glob("*"))


class Working(NamedTuple):
    """Working folder of an attempt, and a note for the user about it."""

    cwd: str
    note: str | None = None


def working_folder(job: LaunchSpec, stand_in: Path) -> Working:
    """Return the working folder of an attempt: that of the submission or, if it is gone, the snapshot's files.

    A rerun reads included files as they were submitted, and declared data from `Config.data_at`. If these differ from
    the files in the submission's folder, the rerun uses an overlay of that folder, created below `stand_in` by the
    first attempt and reused by later ones. An overlay is also used if the folder has none of the included files, since
    the notebook may be on another machine, and for remote data at a path of the folder. Modules are not compared: they
    are imported from `job.code` anyway.
    """
    cwd, code = Path(job.cwd), Path(job.code)
    if stand_in.is_dir():
        return Working(str(overlay_of(cwd, stand_in)))
    snapshot = versions.read(Snapshot, (code / DESCRIPTION).read_bytes())
    project = snapshot.project
    top = code / PROJECT / (project.cwd if project else ".")
    data_at = {name: Path(at) for name, at in job.config.data_at.items() if can_be_led(name, at, job.cwd)}
    mapped = {each.mapped: job.config.data_at.get(each.name, each.path) for each in snapshot.data if each.mapped}
    data_at |= {name: Path(at) for name, at in mapped.items() if "://" not in at}
    if not cwd.is_dir() and not data_at and not mapped:
        return Working(str(top if top.is_dir() else code))
    others = {}
    if project and (not cwd.is_dir() or cwd.resolve() == Path(project.root, project.cwd).resolve()):
        shipped = {os.path.relpath(path, top): path for path in _plain_files(code / PROJECT)}
        others = {name: path for name, path in shipped.items() if not _same(cwd / name, path)}
    first = job.attempt == 1  # later attempts may see files that the training itself has changed
    elsewhere = bool(others) and _gone(cwd, others) and (first or job.staged)  # another folder of the same path
    if elsewhere or (job.rerun and (data_at or (first and others))):
        return _overlay(cwd, data_at, mapped, others, stand_in)
    note = f"{_changed(cwd, others)}: it is read as it is now" if first and others else None
    if mapped:
        there = _overlay(cwd, data_at, mapped, {}, stand_in)
        return there._replace(note=f"{note}. {there.note}" if note else there.note)
    return Working(job.cwd, note)


def _overlay(
    cwd: Path, data_at: Mapping[str, Path], mapped: Mapping[str, str], others: Mapping[str, Path], stand_in: Path
) -> Working:
    making = stand_in.with_name(f"{stand_in.name}.making")
    shutil.rmtree(making, ignore_errors=True)  # left by a service that was killed while creating it
    # Nodes may share the overlay, and each has a copy of remote data in a place of its own: the link leads to a link
    # of the node, which its ranks make. Nobody else can have made it before, as its name is random.
    remote = {name: Path(f"{NODE_LINK}{secrets.token_hex(8)}") for name, at in mapped.items() if "://" in at}
    linked = overlay(cwd, {**data_at, **remote}, others, making).linked
    making.replace(stand_in)
    there = overlay_of(cwd, stand_in)
    why = [f"{_changed(cwd, others)} and is read as it was"] if others else []
    why += [f"{name} is read at {place}" for name, place in {**data_at, **mapped}.items()]
    large = f" Folders beyond {ENTRIES:,} files are links, which os.walk and rglob do not enter." if linked else ""
    return Working(
        str(there),
        f"{'; '.join(why)}: it runs in {there}, an overlay of {cwd} made of links. New files that it writes by a "
        f"relative path stay there.{large}",
    )


def _changed(cwd: Path, others: Mapping[str, Path]) -> str:
    """Return a sentence that names the files `others`, which differ in `cwd` from the submission.

    It says that they are gone if `cwd` has none of them, else that they have changed.
    """
    return (
        f"{listed(sorted(others), _NAMED)} {'is gone' if _gone(cwd, others) else 'has changed'} since it was submitted"
    )


def _gone(cwd: Path, others: Mapping[str, Path]) -> bool:
    return not any((cwd / name).exists() for name in others)


def _plain_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.suffix not in _NOT_READ and path.is_file()]


def _same(a: Path, b: Path) -> bool:
    try:
        return filecmp.cmp(a, b, shallow=False)
    except OSError:
        return False


class Shipped(MetaPathFinder):
    """Import finder that looks for top-level modules in certain folders first, regardless of `sys.path`.

    This also holds after the training definition has called `sys.path.insert(0, "../src")`: the folder may have changed
    since the submission.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [str(folder) for folder in folders]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the import spec of a top-level module in this finder's folders.

        Returns None for submodules, which follow their package, and for namespace packages.
        """
        spec = PathFinder.find_spec(fullname, self._folders) if path is None else None
        # Parts of a namespace package may be elsewhere: sys.path finds all of them.
        return spec if spec is not None and spec.origin is not None else None


def lead(folders: Sequence[Path]) -> None:
    """Make this process, and its forks, import top-level modules from these folders before any others."""
    if folders:
        sys.meta_path.insert(0, Shipped(folders))

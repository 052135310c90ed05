"""Import training definitions of snapshots as modules `kernel_backend.snapshots.loaded.s_<snapshot>`.

Objects returned by `job.load()` have classes of these modules, so that other processes can unpickle them. If such an
object is captured in a snapshot, the snapshot includes the definitions of its classes, since the job may run with
another home directory.
"""

from __future__ import annotations

import ast
import importlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_backend.definition.forms.registry import form_named
from kernel_backend.definition.parse import parse_snapshot
from kernel_backend.definition.script.modules import shipped_modules
from kernel_backend.home import home
from kernel_backend.model import versions
from kernel_backend.model.snapshot import CAPTURED, DEFINITION, DESCRIPTION, Snapshot
from kernel_backend.snapshots.archive import contents, unpack
from kernel_backend.snapshots.loaded.cleanup import in_use, remove_unused
from kernel_backend.snapshots.shipped import shipped_folders

TRAVELLED = f"{CAPTURED}/loaded"  # folder in a snapshot for the definitions of captured values
_DIGITS = 16  # digits of the snapshot's id in a module name
_travelled: list[Path] = []  # folders of definitions that snapshots included
_imported: dict[Path, None] = {}  # folders of the definitions imported by this process


def loaded(id: str, archive: Callable[[], bytes]) -> ModuleType:
    """Return the training definition of snapshot `id` as a module, executed once per process.

    `archive` returns the snapshot's archive. Local modules are imported from the snapshot, unless this process has
    already imported modules of the same names.
    """
    name = module_name(id)
    folder = _home() / name
    if not in_use(folder):
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="new-") as new:
            unpack(archive(), Path(new) / name)
            if not folder.is_dir():
                shutil.move(Path(new) / name, folder)
        remove_unused(folder.parent)
    return importlib.import_module(f"{__name__}.{name}")


def module_name(id: str) -> str:
    """Return the name below this package of the module with the definition of snapshot `id`."""
    return f"s_{id[:_DIGITS]}"


def definition_of(module: str) -> Path | None:
    """Return the folder of the loaded definition to which an imported module belongs; None for other modules."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return next((folder for folder in _imported if file is not None and Path(file).is_relative_to(folder)), None)


def travelling(folder: Path) -> dict[str, bytes]:
    """Return the files of a loaded definition, by path, for a snapshot with a captured value of one of its classes."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {f"{TRAVELLED}/{path.relative_to(folder.parent)}": path.read_bytes() for path in files}


def travelling_archive(id: str, archive: bytes) -> dict[str, bytes]:
    """Return the files of a whole snapshot, by path, for another snapshot that imports its definition."""
    return {f"{TRAVELLED}/{module_name(id)}/{name}": data for name, data in contents(archive).items()}


def take_travelled(code: Path) -> None:
    """Make the loaded definitions that an unpacked snapshot includes importable in this process.

    The folders of their modules are appended to sys.path. `code` is the folder of the snapshot.
    """
    root = code / TRAVELLED
    if root in _travelled or not root.is_dir():
        return
    _travelled.append(root)
    for folder in sorted(root.iterdir()):
        snapshot = versions.read(Snapshot, (folder / DESCRIPTION).read_bytes())
        sys.path += map(str, shipped_folders(folder, snapshot.project))


def _home() -> Path:
    return home() / "loaded"


class _Finder(MetaPathFinder):
    """Import finder for loaded definitions: those included in a snapshot, and those stored in the home directory."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the import spec of a loaded definition; raise ModuleNotFoundError with advice if it is missing."""
        package, _, name = fullname.rpartition(".")
        if package != __name__ or not name.startswith("s_"):
            return None
        folder = next((root / name for root in _travelled if (root / name).is_dir()), _home() / name)
        if folder.parent in _travelled or in_use(folder):
            file = folder / DEFINITION
            return spec_from_file_location(fullname, file, loader=_Loader(fullname, str(file)))
        raise ModuleNotFoundError(
            f"{folder} is not there any more: a loaded model is of the classes in it. Load its experiment's model once "
            "more, job.load(), and read this one again",
            name=fullname,
        )


class _Loader(SourceFileLoader):
    """Import loader that executes a definition with the snapshot's own modules first on sys.path."""

    def source_to_code(self, data: Any, path: Any, **options: Any) -> Any:  # type: ignore[override]
        """Compile a training definition without statements that train, such as Lightning's `fit`.

        Importing the definition must train nothing. The arguments are those of `SourceLoader.source_to_code`.
        """
        snapshot = versions.read(Snapshot, (Path(self.path).parent / DESCRIPTION).read_bytes())
        modules = shipped_modules(Path(self.path).parent, snapshot.project)
        definition = parse_snapshot(bytes(data).decode(), snapshot, modules)
        loadable = form_named(definition.form).loadable
        tree = None if loadable is None else loadable(ast.parse(data), snapshot.roles_from, definition)
        if tree is not None:
            return compile(tree, path, "exec", dont_inherit=True)
        return super().source_to_code(data, path, **options)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the definition in its module."""
        code, before = Path(self.path).parent, list(sys.path)
        _imported[code] = None
        snapshot = versions.read(Snapshot, (code / DESCRIPTION).read_bytes())
        sys.path[:0] = map(str, shipped_folders(code, snapshot.project))
        try:
            super().exec_module(module)
        finally:
            sys.path[:] = before


sys.meta_path.append(_Finder())

"""Import the user's definition as the module `definition`, so that objects of its classes can be pickled.

If the project has a module of that name itself, the definition is the module `daylight_definition`. A program runs as
`__main__`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib.machinery import PathFinder
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import NamedTuple

from kernel_backend.definition.contract import Definition, KerasBackend
from kernel_backend.definition.form import Importable
from kernel_backend.definition.forms.registry import form_named
from kernel_backend.definition.parse import parse, parse_snapshot
from kernel_backend.definition.script.modules import shipped_modules
from kernel_backend.model import versions
from kernel_backend.model.experiment import Config
from kernel_backend.model.record import Value
from kernel_backend.model.snapshot import DEFINITION, MODULE, OTHER_MODULE, Snapshot
from kernel_backend.runner.determinism.rank_variables import hidden_rank_variables
from kernel_backend.snapshots.shipped import editable_folders, lead, shipped_folders

Rewrite = Callable[[ast.Module], ast.Module]
_BEFORE = "_daylight_before_cell"


class Loaded(NamedTuple):
    """Definition of a job: the imported module, the functions found by parsing it, and its snapshot's description."""

    module: ModuleType
    definition: Definition
    snapshot: Snapshot | None = None
    cell: ast.Module | None = None  # training code of a plain cell, or of a program with its own loop
    is_changed: bool = False  # values of the trial were written into the cell's constants


def read_snapshot(code: Path) -> Snapshot | None:
    """Read the description of the snapshot in a folder; None if the folder has none."""
    try:
        return versions.read(Snapshot, (code / "snapshot.json").read_bytes())
    except FileNotFoundError:
        return None


def lengths_of(config: Config) -> dict[str, int]:
    """Return the settings that a cell may hold in constants of its own."""
    return {"epochs": config.epochs, "batch_size": config.batch_size}


def load(
    code: Path,
    cwd: Path,
    before_cell: Callable[[], None] | None = None,
    params: Mapping[str, Value] = MappingProxyType({}),
    lengths: Mapping[str, int] = MappingProxyType({}),
) -> Loaded:
    """Parse and import `<code>/definition.py`.

    `code`, the folders of shipped modules and `cwd` are put first on the module path. `before_cell` is called after the
    statements of earlier cells and before the submitted cell. `params` are hyperparameters for objects that the cell
    creates itself, and `lengths` its `epochs` and `batch_size`, where it may use them as constants. Raises
    InvalidDefinition, and any error of the cell's own statements.
    """
    path = code / DEFINITION
    snapshot = read_snapshot(code)
    source = path.read_text(encoding="utf-8")
    definition = (
        parse_snapshot(source, snapshot, shipped_modules(code, snapshot.project)) if snapshot else parse(source)
    )
    folders = shipped_folders(code, snapshot.project if snapshot else None)
    lead(folders)
    name = MODULE
    ours = [str(code), *map(str, folders), str(cwd)]
    if _has_module(folders):
        name, ours = OTHER_MODULE, [_importable(path), *ours[1:], ours[0]]
    _put_first(ours)
    sys.path.extend(map(str, editable_folders(code)))
    cell = snapshot.roles_from if snapshot else 1
    form = form_named(definition.form)
    if definition.keras_backend is not None:
        _import_keras(definition.keras_backend)
    rewrite = _rewrite(form.importable, cell, definition, params, lengths)
    later = None if form.deferred is None else form.deferred(ast.parse(source, str(path)), cell)
    hides_ranks = form_named(definition.stepped_by).hides_ranks
    with hidden_rank_variables() if hides_ranks else nullcontext():
        module = executed(
            path, source, 1 if form.whole else cell, before_cell or _nothing, rewrite, later is not None, name
        )
    if form.whole:  # the user's modules may have any name
        del sys.modules[name]
    # Processes spawned later get the current path, without additions by the definition.
    _put_first(ours)
    given = {**definition.defaults, **params} | dict(lengths)
    changed = definition.calls_fit and given != definition.defaults | {
        name: definition.settings[name] for name in lengths
    }
    return Loaded(module, definition, snapshot, later, changed)


def _rewrite(
    importable: Importable | None,
    cell: int,
    definition: Definition,
    params: Mapping[str, Value],
    lengths: Mapping[str, int],
) -> Rewrite | None:
    return None if importable is None else lambda tree: importable(tree, cell, definition, params, lengths)


def _import_keras(backend: KerasBackend) -> None:
    """Import Keras with the environment variables that it reads then, and those for TensorFlow's threads and log.

    Its import draws from `random`, which a rank that is forked with Keras does not do: the states stay as they were.
    """
    os.environ["KERAS_BACKEND"] = backend
    if backend == "tensorflow":
        import torch  # not above: the process of a search class starts in a tenth of the time without it

        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # warnings and errors, without what it can do on this CPU
        for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
            os.environ.setdefault(name, str(torch.get_num_threads()))
    from kernel_backend.runner.determinism.random_states import RandomStates

    with RandomStates().aside():
        importlib.import_module("keras")


def executed(
    path: Path,
    source: str,
    cell: int,
    before_cell: Callable[[], None],
    rewrite: Rewrite | None = None,
    above_only: bool = False,
    name: str = MODULE,
) -> ModuleType:
    """Run `source`, the code of the submitted cell and the cells before it, as a module, and return the module.

    `cell` is the line at which the submitted cell begins; `before_cell` is called when it is reached. `rewrite` changes
    a cell written for a framework, so that running it does not train. With `above_only` the submitted cell itself is
    not run, only the cells above it. `name` is the module's name. The source is compiled as a whole, as
    `from __future__` imports and annotations apply to all of a module.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, as pickling and imports may need it
    tree = ast.parse(source, str(path))
    if rewrite is not None:
        tree = rewrite(tree)
    above = sum(statement.lineno < cell for statement in tree.body)
    if above_only:
        del tree.body[above:]
    if above:
        tree.body.insert(above, _call(_BEFORE, line=cell))
        vars(module)[_BEFORE] = before_cell
    else:
        before_cell()
    exec(compile(tree, str(path), "exec", dont_inherit=True), vars(module))
    vars(module).pop(_BEFORE, None)
    return module


def _call(name: str, line: int) -> ast.stmt:
    (statement,) = ast.parse(f"{name}()").body
    return ast.increment_lineno(statement, line - 1)


def _nothing() -> None:
    pass


def _has_module(folders: Sequence[Path]) -> bool:
    """Return True if the project's folders have a module `definition` themselves."""
    spec = PathFinder.find_spec(MODULE, [str(folder) for folder in folders])
    return spec is not None and spec.origin is not None


def _importable(path: Path) -> str:
    """Return a folder in which processes that are spawned later find the definition, the file `path`, as a module."""
    folder = path.parents[1] / "modules"
    folder.mkdir(exist_ok=True)
    with suppress(FileExistsError):  # another rank was faster
        (folder / f"{OTHER_MODULE}.py").symlink_to(path)
    return str(folder)


def _put_first(folders: list[str]) -> None:
    sys.path[:] = folders + [entry for entry in sys.path if entry not in (*folders, "")]

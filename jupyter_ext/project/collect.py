"""Collect the files that a training definition needs: local modules that it imports, and those named by `--include`."""

from __future__ import annotations

import ast
import glob
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from jupyter_ext.capture.problems import Problem, cell_of
from jupyter_ext.project.data_files import data_files
from jupyter_ext.project.files import Tree
from jupyter_ext.project.hydra_config import ConfigPath, config_files, config_paths
from jupyter_ext.project.ignored import Ignored
from jupyter_ext.project.imports import Import, added_folders, imports, touches_path
from jupyter_ext.project.modules import OURS, FoundModule, Modules, editable_folders, is_third_party
from jupyter_ext.project.root import ProjectPlace
from kernel_backend.model.sizes import size as size_text
from kernel_backend.model.snapshot import PROJECT, Project

LIMIT = 64_000_000  # bytes, by default
DATA_LIMIT = 16_000_000  # bytes of a data file that travels because a module names it by its own place


@dataclass(frozen=True)
class ProjectFiles:
    """Project files of a snapshot; `files` maps paths in the archive to the files' contents."""

    project: Project | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    modules: dict[str, Path] = field(default_factory=dict)  # imported modules among them, by full name
    warnings: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def collect(
    source: str,
    place: ProjectPlace,
    *,
    where: Callable[[int], str] = "line {}".format,
    search: Sequence[Path] = (),
    include: Sequence[str] = (),
    limit: int = LIMIT,
    modules: Sequence[str] = (),
    elsewhere: bool = False,
    mapped: Sequence[str] = (),
) -> ProjectFiles:
    """Collect the local modules that `source` imports, directly or not, and the files that patterns in `include` match.

    Patterns are relative to the working folder of `place`. Modules in `modules` are treated as imported. `search` are
    folders in which modules of a file are searched first; for a notebook it is empty. With `elsewhere`, another Python
    runs the source: its packages are unknown here, and no module is reported as missing. `mapped` are paths in the
    working folder at which the job finds remote data: of files there, only modules travel. `where` converts a line of
    `source` to a location shown to users. `limit` is the maximum size of all files in bytes. No error is raised:
    problems are returned in `problems`.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # reported when the definition is parsed
        tree = ast.Module([], [])
    # A notebook has made its changes of sys.path already; those of a file will be made when it runs.
    added = added_folders(tree, search) if search else []
    folders = [Path(os.path.normpath(place.cwd / each)) for each in mapped]
    collector = _Collector(place, Modules([*added, *search]), where, not (search and touches_path(tree)), folders)
    imported = [*imports(tree), *(Import(name, 0) for name in modules)]
    if not elsewhere:
        collector.check(imported)
    collector.follow(imported)
    if search:
        collector.add_data(tree, search[0], "the program")
    else:
        collector.add_cell_config(tree)
    for each in include:
        collector.include(each)
    return collector.read(limit)


class _Collector:
    def __init__(
        self, place: ProjectPlace, modules: Modules, where: Callable[[int], str], sure: bool, mapped: Sequence[Path]
    ) -> None:
        self.place, self.modules, self.where, self._mapped = place, modules, where, mapped
        self.sure = sure  # whether a module that is not found now will be missing in the job, too
        self.tree = Tree(place.root)
        self.sizes: dict[Path, int] = {}
        self.entries: dict[Path, str] = {}  # file -> part of the project, as shown to users
        self.paths: dict[str, None] = {}
        self.taken: dict[str, Path] = {}
        self.warnings: list[str] = []
        self.problems: list[Problem] = []
        self._seen: set[str] = set()
        self._packages: set[Path] = set()
        self._ignored = Ignored(place.root)
        self._staying: dict[Path, str] = {}  # data that a module names by its own place -> the module
        self._beside: dict[Path, str] = {}  # configuration of a cell -> its path next to the job's definition

    # Modules

    def follow(self, first: Sequence[Import]) -> None:
        """Add the local modules among these imports and, recursively, the local modules that they import."""
        queue = deque((name, True) for each in first for name in _names(each))
        while queue:
            name, own = queue.popleft()
            if name not in self._seen:
                self._seen.add(name)
                queue += [(deeper, False) for each in self._take(name, own) for deeper in _names(each)]

    def check(self, wanted: Sequence[Import]) -> None:
        """Report each unconditional import of a module that cannot be found here.

        It is a problem, or only a warning if the module may be found when the job runs, as the code changes `sys.path`.
        """
        for each in wanted:
            self._check(each)

    def _check(self, wanted: Import) -> None:
        top = wanted.name.split(".")[0]
        if not wanted.certain or top in OURS or self.modules.exists(top):
            return
        place = self.where(wanted.line)
        what = f"{place} imports {wanted.name}, which this Python does not have"
        if self.sure:
            self.problems.append(Problem("module", wanted.name, cell_of(place), f"{what}. Install it first."))
        else:
            self.warnings.append(f"{what}: what is put into sys.path is known only when it runs")

    def _take(self, name: str, own: bool) -> list[Import]:
        """Add a module's file, or a package's whole folder, if it is local; return what the module imports.

        `own` is True if the submitted source itself imports it: then a module outside of the project causes a warning.
        """
        top = self.modules.find(name.split(".")[0])
        found = None if top is None or top.name in OURS or is_third_party(top) else self.modules.find(name)
        if found is None or top is None:
            return []
        bases = [self.place.below(each.parent) for each in top.places if self.place.below(each)]
        if not any(self.place.below(each) for each in found.places) or None in bases:
            if found is top and own:
                self._tell_outside(found)
            return []
        self.paths |= dict.fromkeys(filter(None, bases))
        if found.file is None:
            return []
        if found.folders and not any(found.folders[0].is_relative_to(each) for each in self._packages):
            self._packages.add(found.folders[0])
            self._folder(found.folders[0])
        self.taken[name] = found.file
        if found.file not in self.sizes:  # a module outside of packages, or one that is ignored but imported
            self._file(found.file)
        tree = _parsed(found.file)
        self.add_data(tree, found.file.parent, self._name(found.file))
        return imports(tree, name if found.folders else name.rpartition(".")[0])

    def _tell_outside(self, found: FoundModule) -> None:
        path = found.places[0]
        if not any(path.is_relative_to(each) for each in editable_folders()):
            self.warnings.append(
                f"{found.name} ({path}) lies outside of the project folder {self.place.root} and does not travel: "
                "a rerun elsewhere lacks it"
            )

    # Files

    def add_data(self, tree: ast.Module, folder: Path, module: str) -> None:
        """Add small data files that a module in `folder` names by its own place; `module` is its name for users."""
        for path in data_files(tree, folder, self.place.root):
            if path.is_file() and self.tree.holds(path) and not self._ignored.file(path) and _small(path):
                self._file(path)
            elif not self._is_remote(path):
                self._staying[path] = module
        for each in config_paths(tree):
            self._config(Path(os.path.normpath(folder / each.text)))

    def add_cell_config(self, tree: ast.Module) -> None:
        """Add configuration that a cell reads with Hydra, which looks next to the notebook, and in a job next to the
        definition; report a folder that is missing or cannot be there.
        """
        for each in config_paths(tree):
            folder = Path(os.path.normpath(self.place.cwd / each.text))
            if not folder.is_dir() or not folder.is_relative_to(self.place.cwd):
                self._no_config(each, folder)
                continue
            for path in self._config(folder):
                self._beside[path] = os.path.relpath(path, self.place.cwd)

    def _no_config(self, wanted: ConfigPath, folder: Path) -> None:
        place, why = self.where(wanted.line), f"there is no folder {folder}"
        if folder.is_dir():
            why = (
                f"a job has its cell in another folder, which has nothing above it. Write "
                f"initialize_config_dir(os.path.abspath({wanted.text!r})) and compose(...), or submit the program as a "
                "file: -- python train.py"
            )
        message = f"{place}: Hydra's config_path={wanted.text!r} cannot be read in a job: {why}"
        self.problems.append(Problem("config", wanted.text, cell_of(place), message))

    def _config(self, folder: Path) -> list[Path]:
        """Add the files of a folder of Hydra's configuration, and return them."""
        if not folder.is_dir() or not self.tree.holds(folder):
            return []
        found = list(config_files(folder, self.tree))
        for path in found:
            self._file(path)
        return found

    def include(self, pattern: str) -> None:
        """Add the files that match a path or glob pattern, even if ignore rules exclude them."""
        found = sorted(glob.glob(os.path.join(self.place.cwd, os.path.expanduser(pattern)), recursive=True))
        if not found:
            self._problem("include", pattern, f"--include {pattern}: there is nothing of that name in {self.place.cwd}")
        for path in (Path(os.path.abspath(each)) for each in found):
            if self.place.below(path) is None:
                outside = f"{path} lies outside of the project folder {self.place.root}. Move it into the project."
                self._problem("include", pattern, f"--include {pattern}: {outside}")
            elif path.is_dir():
                self._folder(path, Ignored(path))
            else:
                self._file(path)

    def _is_remote(self, path: Path) -> bool:
        """Return True for a file in whose place the job has remote data."""
        return path.suffix != ".py" and any(path.is_relative_to(each) for each in self._mapped)

    def _file(self, path: Path) -> None:
        if self._is_remote(path):
            return
        try:
            self.sizes[path] = path.stat().st_size
        except OSError as error:
            self._unreadable(path, error)
        self.entries[path] = self._name(path)

    def _folder(self, folder: Path, ignored: Ignored | None = None) -> None:
        try:
            for path, size in self.tree.files(folder, ignored):
                if self._is_remote(path):
                    continue
                inner = path.relative_to(folder).parts
                shown = self._name(folder / inner[0])
                self.sizes[path], self.entries[path] = size, shown if len(inner) == 1 else f"{shown}/"
        except OSError as error:
            self._unreadable(Path(error.filename or folder), error)

    # Reading the files

    def read(self, limit: int) -> ProjectFiles:
        """Return the collected files. Above `limit` bytes, report a problem and read only the smallest that fit."""
        left = [f"{self._name(each)} leads out of the project folder and does not travel" for each in self.tree.left]
        if sum(self.sizes.values()) > limit:
            self._problem("size", "project", self._too_large(limit))
        left += self._data_left()
        read = dict(self._read(self._within(limit)))
        files = {f"{PROJECT}/{self._name(path)}": data for path, data in read.items()}
        files |= {self._beside[path]: data for path, data in read.items() if path in self._beside}
        project = None
        if self.sizes:
            cwd = self.place.below(self.place.cwd) or "."
            project = Project(root=str(self.place.root), cwd=cwd, paths=tuple(self.paths))
        return ProjectFiles(project, files, self.taken, (*self.warnings, *left), tuple(self.problems))

    def _data_left(self) -> Iterator[str]:
        for path, module in self._staying.items():
            if not any(each.is_relative_to(path) for each in self.sizes):
                name = os.path.relpath(path, self.place.cwd)
                yield (
                    f"{module} names {self._name(path)}, which does not travel: where the job needs it, "
                    f"submit with --include {name}"
                )

    def _within(self, limit: int) -> list[Path]:
        smallest = sorted(self.sizes, key=lambda path: self.sizes[path])
        sums = accumulate(self.sizes[path] for path in smallest)
        return sorted(path for path, count in zip(smallest, sums, strict=True) if count <= limit)

    def _read(self, paths: Sequence[Path]) -> Iterator[tuple[Path, bytes]]:
        for path in paths:
            if not _storable(path):
                self._problem("file", repr(str(path)), f"{str(path)!r} has a name that no archive can hold: rename it")
                continue
            try:
                yield path, path.read_bytes()
            except FileNotFoundError as error:
                if path.suffix == ".py":  # other files may have been temporary ones of an editor
                    self._unreadable(path, error)
            except OSError as error:
                self._unreadable(path, error)

    def _too_large(self, limit: int) -> str:
        sizes: Counter[str] = Counter()
        for path, size in self.sizes.items():
            sizes[self.entries[path]] += size
        largest = ", ".join(f"{name} ({size_text(size)})" for name, size in sizes.most_common(5))
        return (
            f"the project files that would travel have {size_text(sum(sizes.values()))}, more than {size_text(limit)}. "
            f"The largest: {largest}. Name what the job does not need in .daylightignore, or raise the limit: "
            "--project-limit 200MB."
        )

    def _unreadable(self, path: Path, error: OSError) -> None:
        self._problem("file", self._name(path), f"{self._name(path)} cannot be read: {error.strerror or error}")

    def _problem(self, code: str, name: str, message: str) -> None:
        self.problems.append(Problem(code, name, None, message))

    def _name(self, path: Path) -> str:
        return self.place.below(path) or str(path)


def _small(path: Path) -> bool:
    return path.stat().st_size <= DATA_LIMIT


def _storable(path: Path) -> bool:
    """Return whether a file of this name can be created on every system."""
    try:
        return "\\" not in str(path) and bool(str(path).encode())
    except UnicodeEncodeError:  # the name is not UTF-8
        return False


def _names(wanted: Import) -> Iterator[str]:
    """Yield the names of the modules that an import loads: `a`, `a.b`, `a.b.c` for `from a.b import c`."""
    parts = wanted.name.split(".")
    yield from (".".join(parts[: end + 1]) for end in range(len(parts)))
    yield from (f"{wanted.name}.{each}" for each in wanted.perhaps)


def _parsed(file: Path) -> ast.Module:
    if file.suffix == ".py":
        try:
            return ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):  # reported when it is read or run
            pass
    return ast.Module([], [])

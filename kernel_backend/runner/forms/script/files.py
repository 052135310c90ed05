"""Restore the files that a program writes to their state at the checkpoint, as a restart runs the program again.

A restarted program runs again from its top until it reaches the loop iteration at which the checkpoint was saved.
Meanwhile it is shown its files as they were when it began, if the kernel allows it. Else, files that it created in
earlier attempts are hidden, so that its setup behaves as on the first start, its writes are discarded, and it removes
and moves nothing. At that iteration, files to which it appends are truncated to their size at the checkpoint, files
created later are deleted, open files continue at their offset, and the program is in the folder in which it was.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import json
import os
import shutil
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernel_backend.runner.definition.step_files import IN_NATIVE_CODE, caches_of, is_result
from kernel_backend.runner.forked_children import in_children
from kernel_backend.runner.past.overlays import Overlays
from kernel_backend.runner.past.record import Past

_WRITES = frozenset("wax+")
_DESTROYING: Sequence[tuple[Any, str]] = (
    *((os, name) for name in ("remove", "unlink", "rmdir", "rename", "replace")),
    (shutil, "rmtree"),
)
_UNKNOWN = 2**62  # an earlier version has not recorded when it last opened a file
_FDS = {"dir_fd", "src_dir_fd", "dst_dir_fd"}  # with which a path is not one of the working folder


class _Opened(NamedTuple):
    """File that the program has opened for writing and may not have closed."""

    path: str
    appends: bool
    file: weakref.ReferenceType[Any]


class ProgramFiles:
    """Record of the files in the user's folders that a program writes on one rank."""

    def __init__(
        self, cwd: str, record: Path | None, but: Sequence[str], writes: bool = True, overlays: Overlays | None = None
    ) -> None:
        """Read the record of the files that earlier attempts have created.

        Parameters
        ----------
        cwd : str
            Working directory; paths are stored relative to it.
        record : Path or None
            File with a line of JSON for each file: its size before the program wrote it, and whether it appends to it;
            None for no record.
        but : sequence of str
            Folders of the job itself, whose files are ignored.
        writes : bool
            False on ranks that write no files: they only hide the files that rank 0 has created.
        overlays : Overlays or None
            Overlays by which the process is shown the files of the program's start, until it is at its checkpoint.
        """
        self._overlays = overlays
        self._cwd, self.record, self._writes = cwd, record, writes
        self._caches = (*caches_of(os.environ), *but)
        self._before: dict[str, int | None] = {}  # size before the program wrote it; None if it did not exist
        self._grows: dict[str, int] = {}  # files that are appended to, by the number of states before the last opening
        self._states = 0
        if record is not None and record.exists():
            for line in record.read_text().splitlines():
                with contextlib.suppress(ValueError):  # the last line, at which the process was killed
                    self._remember(json.loads(line))
        self._open: list[_Opened] = []
        self._hidden: set[str] = set()
        self._replays = False
        self.past: Past | None = None  # record of the program's start, which hears of what no audit hook does
        self._thread = threading.get_ident()  # thread of the program; other threads write checkpoints
        self._restored: list[tuple[Any, str, Any]] = []
        in_children(self._ignore_all)

    def replay(self) -> None:
        """Prepare to run a program again up to its checkpoint: hide files of earlier attempts and discard writes."""
        if self._overlays is not None:  # nothing that the program does now reaches its files
            return
        self._replays = True
        self._hidden = {path for path, size in self._before.items() if size is None}

    def state(self) -> dict[str, Any]:
        """Return, for a checkpoint, the sizes of files that the program has written, and the offsets of open files."""
        self._open = [each for each in self._open if _is_open(each.file())]
        positions: dict[str, int] = {}
        for each in self._open:
            file = each.file()
            if file is not None:
                with contextlib.suppress(OSError):  # its disk is full, or it cannot tell while it is iterated over
                    file.flush()
                    positions[each.path] = file.tell()
        sizes = {path: _size(self._absolute(path)) for path in self._before}
        self._states += 1
        grows, taken = sorted({*self._grows, *positions}), self.past.count if self.past is not None else 0
        known = {"sizes": sizes, "positions": positions, "grows": grows, "taken": taken, "number": self._states}
        with contextlib.suppress(FileNotFoundError):  # the program has removed the folder that it is in
            known["cwd"] = os.getcwd()
        return known

    def followed(self) -> list[str]:
        """Return the paths of the open files that `resume` puts back to their state at a checkpoint."""
        return [os.path.realpath(self._absolute(each.path)) for each in self._open if _is_open(each.file())]

    def passed(self, state: Mapping[str, Any]) -> None:
        """Stop hiding files that existed when `state` was saved: the restarted program has reached that point again."""
        if self._overlays is not None:
            sizes = {self._absolute(path): state["sizes"].get(path, before) for path, before in self._before.items()}
            grown = {there: sizes.get(there) for there in map(self._absolute, state["grows"])}
            try:
                self._overlays.advance(
                    [there for there, size in sizes.items() if size is None],
                    {there: size for there, size in grown.items() if size is not None},
                )
            except OSError:  # it goes on as where the kernel allows no overlays
                self.end_replay()
                self.replay()
        self._hidden -= {path for path, size in state["sizes"].items() if size is not None}
        _enter(state)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Restore the files as they were when `state` was saved; the restarted program now continues from there."""
        self.end_replay()
        _enter(state)
        if not self._writes:
            return
        sizes: Mapping[str, int | None] = state["sizes"]
        number = state.get("number", -1)
        since = {path for path, last in self._grows.items() if last >= number} | {*state["positions"]}
        self._states = max(number, *self._grows.values(), 0) + 1
        for path, before in reversed(self._before.items()):  # what is in a folder before the folder
            size, there = sizes.get(path, before), self._absolute(path)
            if size is None:
                with contextlib.suppress(OSError):
                    os.remove(there) if os.path.islink(there) or not os.path.isdir(there) else os.rmdir(there)
            elif (path in since or path not in sizes) and (_size(there) or 0) > size:
                os.truncate(there, size)  # a file that the program has not opened since has grown by others
        self._reopen(state["positions"])

    def end_replay(self) -> None:
        """Show the program its files as they are; what it does to them counts again."""
        self._replays, self._hidden = False, set()
        if self._overlays is not None:
            self._overlays.end()
            self._overlays = None

    @contextlib.contextmanager
    def throughout(self, builtins_of: dict[str, Any]) -> Iterator[None]:
        """Observe the program's file operations during the `with` block.

        `builtins_of` is the builtins dict of the program's modules.
        """
        opens = self._opening(builtins.open)
        given = builtins_of["open"]
        builtins_of["open"] = opens
        self._patch(builtins, "open", opens)
        self._patch(io, "open", opens)
        self._patch(os, "stat", self._seeing(os.stat))
        self._patch(os, "mkdir", self._making(os.mkdir))
        for name in ("link", "symlink"):
            self._patch(os, name, self._linking(getattr(os, name)))
        if self._replays:
            for module, name in _DESTROYING:
                self._patch(module, name, self._sparing(getattr(module, name)))
        for name, function, place in IN_NATIVE_CODE:
            if (real := getattr(sys.modules.get(name), function, None)) is not None:
                self._patch(sys.modules[name], function, self._saving(real, place))
        try:
            yield
        finally:
            builtins_of["open"] = given
            while self._restored:
                setattr(*self._restored.pop())

    @contextlib.contextmanager
    def unobserved(self) -> Iterator[None]:
        """Ignore file operations during the `with` block, as they are the job's own, not the program's."""
        thread, self._thread = self._thread, 0
        try:
            yield
        finally:
            self._thread = thread

    def _ignore_all(self) -> None:
        """Ignore the files of a process that the program has forked: the training's are known to its own process."""
        self._thread = 0

    # Patched functions

    def _opening(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opens(file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
            path = self._path(file)
            if path is None or len(args) > 5 or named.get("opener"):
                return real(file, mode, *args, **named)
            if not set(mode) & _WRITES:
                if path in self._hidden:
                    raise FileNotFoundError(2, os.strerror(2), os.fspath(file))
                return real(file, mode, *args, **named)
            if not self._writes:
                self._hidden.discard(path)
                return real(file, mode, *args, **named)
            self._written(path, grows="a" in mode)
            if self._replays:
                made = real(file, mode.replace("x", "w"), *args, **named, opener=_nowhere)
            else:
                made = real(file, mode, *args, **named)
            self._open.append(_Opened(path, "a" in mode, weakref.ref(made)))
            return made

        return opens

    def _saving(self, real: Callable[..., Any], place: int) -> Callable[..., Any]:
        """Wrap a function that writes a file in native code: the write is recorded, and never discarded.

        `place` is the index of the file's path among the function's arguments.
        """

        def saves(*args: Any, **named: Any) -> Any:
            if (path := self._path(args[place])) is not None and self._writes:
                self._written(path, grows=False)
            self._hidden.discard(path or "")
            return real(*args, **named)

        return saves

    def _seeing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def sees(path: Any, *args: Any, **named: Any) -> Any:
            if self._hidden and not isinstance(path, int) and self._path(path) in self._hidden:
                raise FileNotFoundError(2, os.strerror(2), os.fspath(path))
            try:
                return real(path, *args, **named)
            except FileNotFoundError:
                if self.past is not None and not named and (place := self._path(path)) is not None:
                    self.past.misses(self._absolute(place))
                raise

        return sees

    def _making(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function that creates a folder, so that a restarted program may create a folder that exists already.

        This holds until the program is at its checkpoint. A folder that it has created since is removed then.
        """

        def makes(path: Any, mode: int = 0o777, **options: Any) -> None:
            place = None if options else self._path(path)
            if self._replays:
                self._hidden.discard(place or "")
            elif place is not None and self._writes:
                self._written(place, grows=False)
            if not (self._replays and os.path.isdir(path)):
                real(path, mode, **options)

        return makes

    def _linking(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def links(source: Any, target: Any, *args: Any, **options: Any) -> None:
            place = None if options.keys() & _FDS else self._path(target)
            if place is not None and self._writes and not (self._replays or os.path.lexists(target)):
                self._written(place, grows=False)
            real(source, target, *args, **options)

        return links

    def _sparing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function that removes or moves a file, so that a restarted program does not do so a second time."""

        def spares(path: Any, *args: Any, **named: Any) -> Any:
            if not self._replays or named.keys() & _FDS or (place := self._path(path)) is None:
                return real(path, *args, **named)
            self._hidden.add(place)
            return None

        return spares

    # Paths

    def _path(self, file: Any) -> str | None:
        """Return a file's path, relative to the working directory if the file is within that, else absolute.

        Return None if the file is none that the program writes as a result: a file in a cache or in a folder of the
        job, a file descriptor, or a file that another thread opens.
        """
        if not isinstance(file, str | bytes | os.PathLike) or threading.get_ident() != self._thread:
            return None
        path = os.path.abspath(os.fsdecode(file))
        if not is_result(path, self._cwd, self._caches):
            return None
        relative = os.path.relpath(path, self._cwd)
        return path if relative.startswith("..") else relative

    def _absolute(self, path: str) -> str:
        return os.path.join(self._cwd, path)

    def _written(self, path: str, grows: bool) -> None:
        self._hidden.discard(path)
        if self._overlays is not None:  # what the program wrote at its start is recorded, and the rest is dropped
            return
        if path in self._before and (not grows or self._grows.get(path, -1) >= self._states):
            return
        if grows:  # a kill may come before the next checkpoint, which would tell
            self._grows[path] = self._states
        if path not in self._before:
            self._before[path] = _size(self._absolute(path))
        if self.record is not None:
            with self.unobserved():
                self.record.parent.mkdir(parents=True, exist_ok=True)
                with self.record.open("a") as file:  # a line each, as a program may write many files
                    file.write(json.dumps([path, self._before[path], self._grows.get(path)]) + "\n")

    def _remember(self, known: Any) -> None:
        if isinstance(known, dict):  # an earlier version has written all in one line
            self._before, grows = known["before"], known["grows"]
            self._grows = grows if isinstance(grows, dict) else dict.fromkeys(grows, _UNKNOWN)
        else:
            path, before, grows = known
            self._before[path] = before
            self._grows |= {} if grows is None else {path: grows}

    def _reopen(self, positions: Mapping[str, int]) -> None:
        """Connect each open file object to the real file, at its offset in `positions`.

        The restarted program has opened it on the way to its checkpoint; until now, what it wrote was discarded. A file
        that had another name before the restart, such as one of the time of day, is known by the order of opening.
        """
        self._open = [each for each in self._open if _is_open(each.file())]
        others = iter([path for path in positions if path not in {each.path for each in self._open}])
        for index, each in enumerate(self._open):
            path = each.path if each.path in positions else next(others, None)
            file = each.file()
            if path is None or file is None:
                continue
            self._open[index] = each._replace(path=path)
            file.flush()
            flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if each.appends else 0)
            real = os.open(self._absolute(path), flags, 0o666)
            os.dup2(real, file.fileno(), inheritable=False)
            os.close(real)
            file.seek(positions[path])
            if path != each.path:  # the program may ask for the name
                buffer = getattr(file, "buffer", file)
                with contextlib.suppress(AttributeError):
                    getattr(buffer, "raw", buffer).name = path

    def _patch(self, module: Any, name: str, function: Callable[..., Any]) -> None:
        self._restored.append((module, name, getattr(module, name)))
        setattr(module, name, function)


def _enter(state: Mapping[str, Any]) -> None:
    """Go to the folder in which the program was when `state` was saved, if it is known and there."""
    with contextlib.suppress(OSError):
        os.chdir(state.get("cwd", "."))


def _nowhere(path: str, flags: int) -> int:
    return os.open(os.devnull, flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC))


def _is_open(file: Any) -> bool:
    return file is not None and not file.closed


def _size(path: str) -> int | None:
    try:
        return os.path.getsize(path)
    except OSError:
        return None

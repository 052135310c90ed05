"""Redirect files that step functions write on ranks other than 0 to private folders, so that each file has one writer.

Loss, metrics and training steps run on all ranks. While one runs, `open` and similar functions are patched: rank 0
writes files as usual, and other ranks write to a private folder, from which they also read them. Functions that create
data and models are not patched, since libraries download and cache files under locks that must stay shared.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

# Names by which code distinguishes processes, and so writes one file per rank on purpose.
_OF_A_RANK = {"rank", "get_rank", "local_rank", "global_rank", "RANK", "LOCAL_RANK", "process_index"}
_OF_ALL = {"world", "world_size", "get_world_size", "WORLD_SIZE"}
_OF_A_PROCESS = {"is_main_process", "is_global_zero", "rank_zero_only", "getpid", "gethostname", "uuid1", "uuid4"}
_TELLS_APART = _OF_A_RANK | _OF_ALL | _OF_A_PROCESS
_mkdir = os.mkdir
_SYSTEM = ("/dev", "/proc", "/sys", "/run")
# Functions of `os` that must find a private file by its original name, with the index of the path argument.
_OF_A_PATH = ("stat", "lstat", "access", "chmod", "utime", "truncate", "listxattr", "remove", "unlink")
_OF_TWO = ("rename", "replace")
# Functions by which torch.save and safetensors open files in C++ or Rust, with the index of the path argument.
IN_NATIVE_CODE = (("torch.serialization", "_open_zipfile_writer", 0), ("safetensors.torch", "serialize_file", 1))


def tells_ranks_apart(source: bytes) -> bool:
    """Return True if the code mentions its rank, the number of ranks or its process.

    Such code may decide itself which rank writes which file.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a shipped file for another Python version that is never imported
        return False
    return any(not _TELLS_APART.isdisjoint(_names(node)) for node in ast.walk(tree))


def _names(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(name=name):
            return (name,)
        case ast.Constant(value=str(text)):
            return (text,)
    return ()


def is_result(path: str, cwd: str, caches: Iterable[str]) -> bool:
    """Return True if a file at this path may be an output of the user's code.

    Temporary, system and hidden files, and those below the folders `caches`, are not. `cwd` is the user's working
    folder.
    """
    if any(_within(path, folder) for folder in (*_SYSTEM, tempfile.gettempdir(), *caches) if not _within(cwd, folder)):
        return False
    below = os.path.relpath(path, cwd) if _within(path, cwd) else path
    return not any(part.startswith(".") for part in below.split("/"))


def caches_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the cache folders that environment variables such as HF_HOME and TORCH_HOME name."""
    named = (value for name, value in environment.items() if name.endswith("_HOME") or "CACHE" in name)
    return tuple(value for value in named if os.path.isabs(value) and value != "/")


class StepFiles:
    """Redirection of the files that the user's step functions write: ranks other than 0 write to a private folder."""

    def __init__(
        self, cwd: str, private: Path, rank: int, note: Callable[[str], None], size: int, apart: bool = False
    ) -> None:
        """Set up the redirection for rank `rank` of `size` ranks, whose private folder is `private`.

        `cwd` is the user's working folder. On rank 0, `note` is called for the first file that a step function writes.
        `apart` means that the user's code decides by its rank what to write: then files are redirected only within
        `with aside()`.
        """
        self._cwd, self._folder, self._note, self._size = cwd, str(private), note, size
        self._redirects, self._apart = rank > 0, apart or size == 1
        self._caches = caches_of(os.environ)
        self._own: dict[str, str] = {}  # private path of each redirected file
        self._thread = threading.get_ident()  # thread of the steps; other threads write checkpoints meanwhile
        self._restored: list[tuple[Any, str, Any]] = []

    def inside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, a step function, wrapped so that the files that it writes are redirected while it runs."""
        if self._apart:
            return function

        def called(*args: Any, **named: Any) -> Any:
            before = self._enter()
            try:
                return function(*args, **named)
            finally:
                self._leave(before)

        return called

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Redirect file writes on every rank, even rank 0, during the `with` block; then delete these files.

        It is for calls of the user's functions that are not part of the training, such as trials of a batch size.
        """
        self._redirects, before = True, self._enter()
        try:
            yield
        finally:
            self._leave(before)
            self._redirects = False
            self._own.clear()
            self.close()

    @contextlib.contextmanager
    def throughout(self, builtins_of: dict[str, Any], but: str) -> Iterator[None]:
        """Redirect the file writes of a whole program during the `with` block, on ranks other than 0.

        New folders and deletions are redirected as well. `builtins_of` is the builtins dict of the program's modules.
        Files in the folder `but`, which are the job's own, are not redirected.
        """
        if self._apart or not self._redirects:
            yield
            return
        self._caches = (*self._caches, but)
        os.makedirs(self._folder, exist_ok=True)
        before, given = self._enter(), builtins_of["open"]
        builtins_of["open"] = builtins.open
        self._patch_os()
        self._patch(os, "mkdir", self._mkdir)
        for name in ("remove", "unlink", "rmdir"):
            self._patch(os, name, self._deleting(getattr(os, name)))
        self._patch(shutil, "rmtree", self._deleting(shutil.rmtree))
        try:
            yield
        finally:
            builtins_of["open"] = given
            self._leave(before)

    def close(self) -> None:
        """Delete the private files of this rank."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def opened(self, file: Any, mode: str) -> Any:
        """Return the path to open instead of `file`, given the mode of `open`.

        It is a private path if this rank has written `file` before or will write it now, otherwise `file` itself.
        """
        path = self._path(file)
        if path is None or path in self._own:
            return file if path is None else self._own[path]
        if not set(mode) & set("wax+") or not is_result(path, self._cwd, self._caches):
            return file
        if not self._redirects:
            self._tell(path)
            return file
        if not os.path.isdir(os.path.dirname(path)) or ("r" in mode and not os.path.exists(path)):
            return file  # opening it raises the user's error
        own = self._redirect(path)
        if set(mode) & set("ar") and os.path.isfile(path):
            shutil.copyfile(path, own)
        self._own[path] = own
        self._patch_os()
        return own

    def moved(self, source: Any, target: Any) -> tuple[Any, Any]:
        """Return the two paths to use when `source` is renamed to `target`; both are private if one of them is."""
        before, after = self._path(source), self._path(target)
        if before is None or after is None or not (before in self._own or after in self._own):
            return source, target
        self._own.setdefault(after, self._redirect(after))
        return self._own.get(before, source), self._own[after]

    def _tell(self, path: str) -> None:
        note, self._note = self._note, lambda text: None
        note(
            f"{os.path.relpath(path, self._cwd) if _within(path, self._cwd) else path} is written by rank 0 of "
            f"{self._size} alone: what loss, metrics and steps write on other ranks is discarded. For a file of each "
            "rank, take rank as an argument and name the file by it"
        )

    def _path(self, file: Any) -> str | None:
        """Return the absolute path of `file`; None for a file descriptor, or in a thread that runs no step function."""
        if not isinstance(file, str | bytes | os.PathLike) or threading.get_ident() != self._thread:
            return None
        path = os.path.abspath(os.fsdecode(file))
        return None if _within(path, self._folder) else path

    def _redirect(self, path: str) -> str:
        own = f"{self._folder}{path}"
        os.makedirs(os.path.dirname(own), exist_ok=True)
        return own

    def _enter(self) -> int:
        before, open_file = len(self._restored), builtins.open

        def opens(file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
            # A file with an opener, as in tempfile, is opened by that.
            path = file if len(args) > 5 or named.get("opener") else self.opened(file, mode)
            return open_file(path, mode, *args, **named)

        self._patch(builtins, "open", opens)
        self._patch(io, "open", opens)
        for name, function, place in IN_NATIVE_CODE:
            if (real := getattr(sys.modules.get(name), function, None)) is not None:
                self._patch(sys.modules[name], function, self._saving(real, place))
        if self._own:
            self._patch_os()
        return before

    def _leave(self, before: int) -> None:
        while len(self._restored) > before:
            setattr(*self._restored.pop())

    def _patch(self, module: Any, name: str, function: Callable[..., Any]) -> None:
        self._restored.append((module, name, getattr(module, name)))
        setattr(module, name, function)

    def _saving(self, real: Callable[..., Any], place: int) -> Callable[..., Any]:
        def saves(*args: Any, **named: Any) -> Any:
            return real(*args[:place], self.opened(args[place], "w"), *args[place + 1 :], **named)

        return saves

    def _patch_os(self) -> None:
        if any(module is os for module, _, _ in self._restored):
            return
        for name in _OF_A_PATH:
            self._patch(os, name, self._of_path(getattr(os, name)))
        for name in _OF_TWO:
            self._patch(os, name, self._of_two(getattr(os, name)))

    def _mkdir(self, path: Any, mode: int = 0o777, **options: Any) -> None:
        """Create the folder `path` as a private folder of this rank, as rank 0 creates the real one.

        Replaces `os.mkdir` on ranks other than 0.
        """
        found = self._path(path)
        if found is None or not is_result(found, self._cwd, self._caches):
            _mkdir(path, mode, **options)
        else:
            self._own[found] = self._redirect(found)
            os.makedirs(self._own[found], exist_ok=True)

    def _deleting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a substitute for `real`, a function that deletes a file, for ranks other than 0.

        It deletes a private file; any other file is not deleted, but no longer visible to this rank's code.
        """

        def deletes(path: Any, *args: Any, **named: Any) -> Any:
            found = self._path(path)
            if found is None or not is_result(found, self._cwd, self._caches):
                return real(path, *args, **named)
            if found not in self._own:
                self._own[found] = self._redirect(found)
                return None
            return real(self._own[found], *args, **named)

        return deletes

    def _of_path(self, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda path, *args, **named: real(self._own.get(self._path(path) or "", path), *args, **named)

    def _of_two(self, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda src, dst, **named: real(*self.moved(src, dst), **named)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")

"""Fingerprint a local folder or file by digests of its bytes, reading only files whose `stat` metadata has changed."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import xxhash

from kernel_backend.data.base import UNREADABLE, File, Fingerprint, Say, fingerprint_of, printable
from kernel_backend.data.cache import CacheEntry, StatCache, StatSignature, looks
from kernel_backend.errors import InvalidRequest

THREADS = 8  # digesting releases the interpreter lock, and network drives answer many requests at once
AT_ONCE = 500  # files per task of a thread
SLOW_S = 1e-4  # seconds to stat a file, above which a drive is treated as slow
PIECE = 2**20  # bytes
TOLD_S = 2.0  # between progress messages
TRIES = 3  # for a file that changes while it is read
NOWHERE = StatSignature(0, 0, 0, 0, 0)  # metadata of inaccessible files


def fingerprint(root: Path, cache: StatCache, say: Say) -> Fingerprint:
    """Return the fingerprint of the file `root`, or of all files below the folder `root` (links are followed).

    `cache` has digests of files that have not changed. `say` is called with progress if it takes long. Raises
    InvalidRequest if there is no file.
    """
    began = time.time_ns()
    top = os.fsencode(root)
    with ThreadPoolExecutor(THREADS, "fingerprint") as threads:
        found = dict(_files(top, threads))
        if not found:
            raise _nothing(root)
        known = cache.below(top)
        entries = {path: known[path] for path, seen in found.items() if path in known and known[path].looks == seen}
        unread = [(path, seen) for path, seen in found.items() if path not in entries]
        fresh = dict(_read_all(unread, threads, f"{root}: {{:,}} of {len(unread):,} files read", say))
    gone = [path for path in known if path not in found]
    cache.change({path: entry for path, entry in fresh.items() if entry.looks.settled(began) and _read(entry)}, gone)
    begin = len(top.rstrip(b"/")) + 1
    files = (
        File(printable(os.fsdecode(path[begin:]) or root.name), entry.looks.size, entry.digest)
        for path, entry in (entries | fresh).items()
    )
    return fingerprint_of(files, sum(map(_read, fresh.values())))


def digest_of(path: bytes) -> CacheEntry | None:
    """Read a file and return its digest (xxh3-128), with its metadata at that time; None if it does not exist."""
    entry = None
    for _ in range(TRIES):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError:
            return CacheEntry(NOWHERE, UNREADABLE)
        try:
            before = looks(os.fstat(file))
            entry = CacheEntry(before, _content(file))
            if looks(os.fstat(file)) == before:
                break
        except OSError:
            return CacheEntry(before, UNREADABLE)
        finally:
            os.close(file)
    return entry


class _Memory(threading.local):
    """Buffer for reading files, one for each thread."""

    def __init__(self) -> None:
        self.piece = memoryview(bytearray(PIECE))


_memory = _Memory()


def _content(file: int) -> str:
    piece, seen = _memory.piece, xxhash.xxh3_128()
    while count := os.readv(file, [piece]):
        seen.update(piece[:count])
    return seen.hexdigest()


def _read(entry: CacheEntry) -> bool:
    return entry.digest != UNREADABLE


def _read_all(
    unread: list[tuple[bytes, StatSignature]], threads: ThreadPoolExecutor, told: str, say: Say
) -> Iterator[tuple[bytes, CacheEntry]]:
    """Read the files `unread` in several threads, and yield (path, cache entry) of each that still exists.

    `say` is called with progress: the format string `told`, with the number of files read so far in place of `{}`.
    """
    done, next_word = 0, time.monotonic() + TOLD_S
    chunks = [unread[begin : begin + AT_ONCE] for begin in range(0, len(unread), AT_ONCE)]
    for chunk, entries in zip(chunks, threads.map(_read_some, chunks), strict=True):
        yield from ((path, entry) for (path, _), entry in zip(chunk, entries, strict=True) if entry is not None)
        done += len(chunk)
        if time.monotonic() > next_word and done < len(unread):
            say(told.format(done))
            next_word = time.monotonic() + TOLD_S


def _read_some(chunk: list[tuple[bytes, StatSignature]]) -> list[CacheEntry | None]:
    return [CacheEntry(seen, UNREADABLE) if seen is NOWHERE else digest_of(path) for path, seen in chunk]


class _Folder(NamedTuple):
    path: bytes
    above: frozenset[tuple[int, int]]  # device and inode of parent folders, to detect circular links


def _files(top: bytes, threads: ThreadPoolExecutor) -> Iterator[tuple[bytes, StatSignature]]:
    """Yield the path and metadata of every file at or below the path `top`.

    Files that cannot be accessed get the constant NOWHERE as their metadata. Slow drives are read by `threads`.
    """
    try:
        status = os.stat(top)
    except OSError:
        return
    if stat.S_ISREG(status.st_mode):
        yield top, looks(status)
    folders = [_Folder(top, frozenset())] if stat.S_ISDIR(status.st_mode) else []
    slow = False
    while folders:
        inner: list[_Folder] = []
        began, count = time.perf_counter(), 1
        for files, found in threads.map(_scan, folders) if slow else map(_scan, folders):
            yield from files
            inner += found
            count += len(files) + len(found)
        # Threads help with a slow drive; with a fast one they only contend.
        slow = (time.perf_counter() - began) / count > SLOW_S
        folders = inner


def _scan(folder: _Folder) -> tuple[list[tuple[bytes, StatSignature]], list[_Folder]]:
    files: list[tuple[bytes, StatSignature]] = []
    folders: list[_Folder] = []
    try:
        status = os.stat(folder.path)
        if (here := (status.st_dev, status.st_ino)) in folder.above:
            return files, folders
        with os.scandir(folder.path) as entries:
            for entry in entries:
                _look(entry, files, folders, folder.above | {here})
    except (FileNotFoundError, NotADirectoryError):
        pass  # deleted meanwhile
    except OSError:
        files.append((folder.path.rstrip(b"/") + b"/", NOWHERE))
    return files, folders


def _look(
    entry: os.DirEntry[bytes],
    files: list[tuple[bytes, StatSignature]],
    folders: list[_Folder],
    above: frozenset[tuple[int, int]],
) -> None:
    try:
        status = entry.stat()
    except PermissionError:
        files.append((entry.path, NOWHERE))
    except OSError:
        pass  # a broken or circular link, or deleted meanwhile
    else:
        if stat.S_ISREG(status.st_mode):
            files.append((entry.path, looks(status)))
        elif stat.S_ISDIR(status.st_mode):
            folders.append(_Folder(entry.path, above))


def _nothing(root: Path) -> InvalidRequest:
    if root.is_dir():
        what = "has no file in it"
    else:
        what = "is neither a file nor a folder" if root.exists() else "is not there"
    return InvalidRequest(f"--data {root} {what}: name a folder with files, a file, or a URL such as s3://bucket/train")

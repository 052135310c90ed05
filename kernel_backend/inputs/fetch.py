"""Bring the inputs of a training to this node: fetch objects that it lacks, and check the right to read the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from threading import Event, Lock, Thread
from typing import NamedTuple

from kernel_backend.data.base import raw_name
from kernel_backend.differences.listing import read_list
from kernel_backend.errors import InvalidRequest
from kernel_backend.inputs.node_cache import NodeCache, View, key_of
from kernel_backend.inputs.store import Changed, RemoteStore, Wanted
from kernel_backend.model.record import Record
from kernel_backend.model.sizes import size
from kernel_backend.model.views.starting import duration

THREADS = 32  # objects at once
TOLD_S = 0.5  # between two texts on progress

Say = Callable[[str], None]


class Input(Record):
    """Remote data that a training reads as a local folder."""

    name: str  # by which the training knows it
    url: str
    digest: str  # of the list of its objects
    listed: str  # file with that list, one tab-separated line per object: name, size, version


class FetchRequest(Record):
    """Inputs to bring to a node, and the folder of its cache."""

    root: str
    limit: int | None = None  # bytes
    inputs: tuple[Input, ...]


class Fetched(NamedTuple):
    """Folder with a link to each input, by name; the path of each; and sentences for the user."""

    folder: Path
    places: dict[str, str]
    notes: tuple[str, ...]


class _Object(NamedTuple):
    name: str  # path below the view
    key: str  # in the cache
    wanted: Wanted


def view_of(asked: Input) -> str:
    """Return the digest that identifies an input's view in the cache of a node."""
    return _digest(asked.url, asked.digest)


def fetch(request: FetchRequest, say: Say, held: ExitStack) -> Fetched:
    """Bring inputs to this node, and hold them until `held` is closed; `say` is called with texts on progress.

    Raises InvalidRequest, with a sentence for the user, for data that cannot be had: it is gone or was replaced, the
    credentials do not open it, or this node has no room for it.
    """
    cache = NodeCache(Path(request.root), request.limit)
    views: dict[str, Path] = {}
    notes: list[str] = []
    for each in request.inputs:
        view = held.enter_context(cache.leased(view_of(each)))
        fetching = _Fetching(each, RemoteStore(each.url), view)
        with _telling(fetching.progress, say):
            notes += fetching.run(cache)
        views[each.name] = view.data / fetching.objects[0].name if fetching.is_object else view.data
    folder = cache.join(_digest(*(f"{name}={place}" for name, place in sorted(views.items()))), views)
    places = {name: str(place if place.is_file() else folder / name) for name, place in views.items()}
    return Fetched(folder, places, tuple(notes))


class _Fetching:
    """One input that is brought to this node by several threads."""

    def __init__(self, asked: Input, store: RemoteStore, view: View) -> None:
        self._asked, self._store, self._view = asked, store, view
        rows = read_list(Path(asked.listed).read_bytes())
        self.is_object = len(rows) == 1 and store.is_object(raw_name(next(iter(rows))))
        self.objects = [
            _object(store, printed, int(length), version, self.is_object) for printed, (length, version) in rows.items()
        ]
        self._lock = Lock()
        self._arrived = self._total = 0  # bytes
        self._checked, self._of = 0, 0  # objects
        self._began = time.monotonic()
        self._changed: list[str] = []

    def run(self, cache: NodeCache) -> list[str]:
        """Bring the input here, and build its view; return sentences for the user."""
        whole = self._view.data.exists()
        missing = [] if whole else [each for each in self.objects if not self._view.hold(each.key)]
        lacking = {each.key for each in missing}
        here = [each for each in self.objects if each.key not in lacking]
        self._total = sum(each.wanted.size for each in missing)
        if missing:
            cache.make_room(self._total)
        threads = ThreadPoolExecutor(THREADS, "inputs")
        try:
            self._of = len(here)
            _all(here, lambda each: threads.submit(self._check, each))
            self._began = time.monotonic()
            later = _all(missing, lambda each: threads.submit(self._fetch, each, wait=False))
            _all(later, lambda each: threads.submit(self._fetch, each, wait=True))
        finally:
            threads.shutdown(wait=False, cancel_futures=True)  # after an error, the others are of no use
        self._view.build({each.name: each.key for each in self.objects})
        return list(self._notes(len(missing)))

    def progress(self) -> str:
        """Return what it does now: `fetching train: 3.1 GB of 12.0 GB, 220.0 MB/s, 41 s left`."""
        name = self._asked.name
        if self._checked < self._of:
            return f"checking {name}: {self._checked:,} of {self._of:,} objects"
        passed = time.monotonic() - self._began
        rate = self._arrived / passed if passed else 0.0
        left = f", {duration((self._total - self._arrived) / rate)} left" if rate else ""
        return f"fetching {name}: {size(self._arrived)} of {size(self._total)}, {size(int(rate))}/s{left}"

    def _check(self, each: _Object) -> bool:
        try:
            self._store.check(each.wanted)
        except Changed as error:  # the version of the submission is here, and the right to read it was proven
            self._changed.append(error.message)
        with self._lock:
            self._checked += 1
        return True

    def _fetch(self, each: _Object, wait: bool) -> bool:
        return self._view.fetch(
            each.key, each.wanted.size, partial(self._store.download, each.wanted, self._took), wait=wait
        )

    def _took(self, count: int) -> None:
        with self._lock:
            self._arrived += count

    def _notes(self, fetched: int) -> Iterator[str]:
        if fetched:
            count = f"{fetched:,} object{'' if fetched == 1 else 's'}"
            passed = duration(time.monotonic() - self._began)
            yield f"{self._asked.name}: fetched {count}, {size(self._total)}, in {passed}"
        if self._changed:
            more = len(self._changed) - 1
            also = f", and so were {more:,} more objects" if more else ""
            yield f"{self._changed[0]}{also}: the versions of the submission are on this node, and are used"


def _all(objects: Sequence[_Object], submit: Callable[[_Object], Future[bool]]) -> list[_Object]:
    """Do something for all objects, and return those for which it returned False; raise its first error."""
    tasks = {submit(each): each for each in objects}
    return [tasks[done] for done in as_completed(tasks) if not done.result()]


@contextmanager
def _telling(progress: Callable[[], str], say: Say) -> Iterator[None]:
    """Call `say` with texts on progress during the block, also while nothing arrives."""
    over = Event()

    def tell() -> None:
        while not over.wait(TOLD_S):
            say(progress())

    teller = Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _object(store: RemoteStore, printed: str, length: int, version: str, alone: bool) -> _Object:
    """Return an object of a list; raise InvalidRequest if its store tells no versions, or for a dangerous name."""
    name = raw_name(printed)
    path = store.root if alone else f"{store.root}/{name}"
    if not version:
        raise InvalidRequest(
            f"{store.address(path)}: its store tells no version of it, so that a copy could not be told from a newer "
            "one: fetch it in prepare()"
        )
    if not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise InvalidRequest(f"{store.address(path)} has a name that no file below a folder can have")
    wanted = Wanted(path, length, version)
    return _Object(name, key_of(store.address(path), version, length), wanted)


def _digest(*parts: str) -> str:
    return blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

"""Bring the inputs of a training to this node: fetch objects that it lacks, and check the right to read the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from kernel_backend.data.base import raw_name
from kernel_backend.differences.listing import read_list
from kernel_backend.errors import DaylightError, InvalidRequest
from kernel_backend.inputs.arrival import THREADS, Arrival, Object, State
from kernel_backend.inputs.node_cache import NodeCache, View, key_of
from kernel_backend.inputs.server import Client, serve
from kernel_backend.inputs.store import Changed, RemoteStore, Wanted
from kernel_backend.model.record import Record
from kernel_backend.model.sizes import size
from kernel_backend.model.views.starting import counted, duration

TOLD_S = 0.5  # between two texts on progress
SETTLED_S = 5.0  # until a rate tells how long the rest will take
_LOOK_S = 0.1

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
    # A training may begin before its data is here, if all of it would take more seconds; None: it may not.
    patience: float | None = None
    inputs: tuple[Input, ...]


class Fetched(NamedTuple):
    """Folder with a link to each input, by name; the path of each; sentences for the user; and what is on its way."""

    folder: Path
    places: dict[str, str]
    notes: tuple[str, ...]
    arriving: tuple[str, ...] = ()  # folders of the views that are not whole yet


def view_of(asked: Input) -> str:
    """Return the digest that identifies an input's view in the cache of a node."""
    return _digest(asked.url, asked.digest)


def fetch(request: FetchRequest, say: Say, held: ExitStack) -> Fetched:
    """Bring inputs to this node, and hold them until `held` is closed; `say` is called with texts on progress.

    What is on its way at the return goes on to arrive while this process lives. Raises InvalidRequest, with a sentence
    for the user, for data that cannot be had: it is gone or was replaced, the credentials do not open it, or this node
    has no room for it.
    """
    cache = NodeCache(Path(request.root), request.limit)
    views: dict[str, Path] = {}
    files, notes, arriving = dict[str, str](), list[str](), list[str]()
    for each in request.inputs:
        view = held.enter_context(cache.leased(view_of(each)))
        fetching = _Fetching(each, RemoteStore(each.url), view, cache, request.patience)
        if not fetching.run(say):
            arriving.append(str(view.folder))
        notes += fetching.notes()
        if fetching.is_object:
            files[each.name] = str(view.data / next(iter(fetching.objects)))
        views[each.name] = Path(files.get(each.name, view.data))
    folder = cache.join(_digest(*(f"{name}={place}" for name, place in sorted(views.items()))), views)
    places = {name: files.get(name, str(folder / name)) for name in views}
    return Fetched(folder, places, tuple(notes), tuple(arriving))


def begins(patience: float | None, elapsed: float, left: float) -> bool:
    """Return whether a training begins while its data arrives: fetching has taken `elapsed` seconds of about `left`.

    Examples
    --------
    >>> [begins(60.0, 5.0, left) for left in (40.0, 80.0)]
    [False, True]
    >>> [begins(None, 500.0, 9.0), begins(0.0, 0.0, 9.0)]
    [False, True]
    """
    return patience is not None and (patience == 0 or (elapsed >= SETTLED_S and elapsed + left > patience))


class _Fetching:
    """One input that is brought to this node, by this process or by another one that began before."""

    def __init__(self, asked: Input, store: RemoteStore, view: View, cache: NodeCache, patience: float | None) -> None:
        self._name, self._store, self._view, self._cache, self._patience = asked.name, store, view, cache, patience
        rows = read_list(Path(asked.listed).read_bytes())
        self.is_object = len(rows) == 1 and store.is_object(raw_name(next(iter(rows))))
        self.objects = dict(
            _object(store, printed, int(length), version, self.is_object) for printed, (length, version) in rows.items()
        )
        self._checked, self._of = 0, 0  # objects
        self._changed: list[str] = []
        self._credentials = ""  # a digest of them
        self._may_read = False  # what is on the node
        self._arrival: Arrival | None = None  # while this process fetches
        self._fetched = ""  # what this process has fetched, for the user
        self._began = time.monotonic()
        self._over = Event()
        self._error: DaylightError | None = None

    def run(self, say: Say) -> bool:
        """Return True once all is here, or False once the training may begin and the rest arrives meanwhile."""
        Thread(target=self._bring, name="fetch", daemon=True).start()
        while not self._over.wait(TOLD_S if self._patience != 0 else _LOOK_S):
            state = self._state()
            say(state.text)
            if state.evicts and self._patience is None:
                raise InvalidRequest(
                    f"{self._name}: another training on this node reads this data, and its cache {self._cache.root} "
                    "has no room for all of it, which this one needs: wait for the other's end, or give it more room"
                )
            if state.left is not None and begins(self._patience, time.monotonic() - self._began, state.left):
                return False
        if self._error is not None:
            raise self._error
        return True

    def notes(self) -> Iterator[str]:
        """Yield sentences for the user."""
        if self._fetched:
            yield self._fetched
        elif not self._over.is_set():
            state = self._state()
            again = ", some of it again in each epoch, as the cache is smaller" if state.evicts else ""
            yield f"the training does not wait for all of its data, but fetches it as it reads it{again}: {state.text}"
        if self._changed:
            more = len(self._changed) - 1
            also = f", and so were {more:,} more objects" if more else ""
            yield f"{self._changed[0]}{also}: the versions of the submission are on this node, and are used"

    def _state(self) -> State:
        """Return how far it is; nothing may be read yet if it does not say how much is left."""
        if self._arrival is not None:
            return self._arrival.state()
        if not self._may_read:
            return State(f"checking {self._name}: {self._checked:,} of {self._of:,} objects")
        try:
            client = Client(self._view.folder)
            try:
                return client.state()
            finally:
                client.close()
        except OSError:  # it has not begun, or just ended
            return State(f"fetching {self._name}")

    def _bring(self) -> None:
        """Bring the input here, unless another process does so: then wait until it has."""
        try:
            self._credentials = self._store.credentials()
            while not self._view.whole or not self._may_read:
                with self._view.serving() as mine:
                    if mine and not self._view.whole:
                        self._fetch()
                        break
                if not self._may_read:
                    self._check(self.objects)
                    self._view.note_checked(self._credentials)
                else:
                    time.sleep(_LOOK_S)
        except DaylightError as error:
            self._error = error
        except Exception as error:
            self._error = InvalidRequest(f"{self._name} cannot be fetched: {type(error).__name__}: {error}")
        self._over.set()

    def _fetch(self) -> None:
        sizes = {name: each.wanted.size for name, each in self.objects.items()}
        placed = self._view.lay(sizes)
        others = [name for name, each in self.objects.items() if name not in placed and self._view.has(each.key)]
        self._check([*placed, *others])
        here = placed | {name for name in others if self._view.take(name, self.objects[name].key)}
        missing = sum(sizes.values()) - (present := sum(sizes[name] for name in here))
        room, most = self._cache.make_room(missing), None
        if missing > room:
            most = room + present
            if self._patience is None or max(sizes.values()) > most:
                raise self._cache.too_small(missing, room)
        arrival = Arrival(self._name, self.objects, self._view, self._store, here, most)
        self._arrival = arrival
        serve(arrival, self._view.folder)
        arrival.begin()
        while not arrival.complete(_LOOK_S):
            pass
        self._view.finish()
        self._view.note_checked(self._credentials)
        if missing:
            count = counted(len(sizes) - len(here), "object")
            self._fetched = (
                f"{self._name}: fetched {count}, {size(missing)}, in {duration(time.monotonic() - self._began)}"
            )

    def _check(self, names: Collection[str]) -> None:
        """Check the right to read objects that are on this node, unless it was proven a short time ago.

        Raises InvalidRequest without the right.
        """
        if not (self._may_read or self._view.is_checked(self._credentials)):
            self._of = len(names)
            threads = ThreadPoolExecutor(THREADS, "checks")
            try:
                for _ in threads.map(self._check_one, [self.objects[name].wanted for name in names]):
                    self._checked += 1
            finally:
                threads.shutdown(wait=False, cancel_futures=True)  # after an error, the others are of no use
        self._may_read = True

    def _check_one(self, wanted: Wanted) -> None:
        try:
            self._store.check(wanted)
        except Changed as error:  # the version of the submission is here, and the right to read it was proven
            self._changed.append(error.message)


def _object(store: RemoteStore, printed: str, length: int, version: str, alone: bool) -> tuple[str, Object]:
    """Return the path and an object of a list.

    Raises InvalidRequest if its store tells no versions, or for a dangerous name.
    """
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
    return name, Object(key_of(store.address(path), version, length), wanted)


def _digest(*parts: str) -> str:
    return blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

"""Decide which object of an input is fetched next and which one is evicted first: by when they are read again."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Container, Iterable

_UNKNOWN = 2**40  # place of an object of which no reader has said when it reads it: after all others
_STALE = 4  # entries of a heap for each object before it is built anew


class Order:
    """Objects of an input in the order in which they are needed next, as far as that is known.

    Readers, such as the ranks of a training, may tell what they will read. Other objects are thought to be read in the
    order of their list, and again in the order in which they were read last. Fetching the object that is needed first
    into the room of the one that is needed last is optimal for a known order (Belady 1966: A study of replacement
    algorithms for a virtual-storage computer).
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._later = {name: _UNKNOWN + number for number, name in enumerate(names)}
        self._uses: dict[str, list[tuple[int, int]]] = {}  # (place, reader) of the coming reads of each object, sorted
        self._next = _UNKNOWN + len(self._later)
        self._told: dict[int, int] = {}  # place of each reader's next read to be told
        self._reached = 0  # place of the newest read
        self._here: set[str] = set()
        self._coming: set[str] = set()  # objects that are being fetched
        self._firsts: list[tuple[int, str]] = []  # heap of objects that are missing; those that are out of date stay
        self._lasts: list[tuple[int, str]] = []  # heap of objects that are here, with negative places
        for name in self._later:
            self._push(name)

    def expect(self, reader: int, names: Iterable[str]) -> None:
        """Take what a reader will read next, after what it has told before; unknown names are left out."""
        place = self._told.get(reader, self._reached)
        for name in names:
            if name in self._later:
                insort(self._uses.setdefault(name, []), (place, reader))
                self._push(name)
            place += 1
        self._told[reader] = place

    def forget(self, reader: int) -> None:
        """Drop what a reader has told."""
        if self._told.pop(reader, None) is not None:
            for name, uses in self._uses.items():
                uses[:] = [use for use in uses if use[1] != reader]
                self._push(name)

    def read(self, name: str) -> None:
        """Note that an object is read now."""
        if uses := self._uses.get(name):
            self._reached = max(self._reached, uses.pop(0)[0])
        self._later[name], self._next = self._next, self._next + 1
        self._push(name)

    def due(self, name: str) -> int:
        """Return the place of the next read of an object: the smaller, the sooner."""
        uses = self._uses.get(name)
        return uses[0][0] if uses else self._later[name]

    def fetching(self, name: str) -> None:
        """Note that an object is being fetched."""
        self._coming.add(name)

    def arrived(self, name: str) -> None:
        """Note that an object is here."""
        self._coming.discard(name)
        self._here.add(name)
        self._push(name)

    def missing(self, name: str) -> None:
        """Note that an object could not be fetched yet, or was evicted."""
        self._coming.discard(name)
        self._here.discard(name)
        self._push(name)

    def __contains__(self, name: str) -> bool:
        return name in self._later

    def is_here(self, name: str) -> bool:
        """Return whether an object is here."""
        return name in self._here

    def is_coming(self, name: str) -> bool:
        """Return whether an object is being fetched."""
        return name in self._coming

    @property
    def complete(self) -> bool:
        """Return whether all objects are here."""
        return len(self._here) == len(self._later)

    def first_missing(self) -> str | None:
        """Return the object that is needed first of those that are neither here nor being fetched."""
        heap = self._firsts
        while heap and (heap[0][0] != self.due(heap[0][1]) or heap[0][1] in self._here or heap[0][1] in self._coming):
            heapq.heappop(heap)
        return heap[0][1] if heap else None

    def last_here(self, but: Container[str]) -> str | None:
        """Return the object that is needed last of those that are here, other than those in `but`."""
        heap, kept, found = self._lasts, [], None
        while heap and found is None:
            place, name = heap[0]
            if -place != self.due(name) or name not in self._here:
                heapq.heappop(heap)
            elif name in but:
                kept.append(heapq.heappop(heap))
            else:
                found = name
        for each in kept:
            heapq.heappush(heap, each)
        return found

    def _push(self, name: str) -> None:
        heap, sign = (self._lasts, -1) if name in self._here else (self._firsts, 1)
        heapq.heappush(heap, (sign * self.due(name), name))
        if len(heap) > _STALE * len(self._later) + _STALE:  # most are out of date
            heap[:] = [each for each in set(heap) if sign * each[0] == self.due(each[1])]
            heapq.heapify(heap)

"""Place a gang on as few nodes as possible, or not at all if it does not fit.

Among nodes on which it fits, those with the fewest free slots are preferred.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping

from kernel_backend.model.resources import Node

SlotsByNode = tuple[tuple[str, int], ...]  # (node, number of slots), in the order of ranks
NONE: Mapping[str, int] = {}


def largest_gang(nodes: Iterable[Node], one_node: bool = False) -> int:
    """Return the number of slots of the largest gang that the nodes can hold if all slots are free.

    All slots of a gang are of one kind of device; with `one_node`, all are on one node.
    """
    return largest(((node.kind, node.slots) for node in nodes), one_node)


def largest(counts: Iterable[tuple[str, int]], one_node: bool = False) -> int:
    """Return the number of slots of the largest gang, like `largest_gang`, given (kind of device, slots) of each node.

    With `one_node`, all slots of the gang are on one node.
    """
    totals: dict[str, int] = {}
    for kind, slots in counts:
        of_kind = totals.get(kind, 0)
        totals[kind] = max(of_kind, slots) if one_node else of_kind + slots
    return max(totals.values(), default=0)


def feasible(nodes: Iterable[Node], slots: int, excluded: Collection[str], one_node: bool = False) -> bool:
    """Return whether a gang of `slots` would fit on the nodes, without excluded ones, if all were free."""
    return slots <= largest_gang([node for node in nodes if node.name not in excluded], one_node)


class Capacity:
    """Free slots on the nodes of one kind of device, indexed by how many slots are free on a node."""

    def __init__(self, free: Iterable[tuple[str, int]], future: frozenset[str] = frozenset()) -> None:
        """Create the index from (node, free slots). Nodes in `future` do not exist yet, and are used last."""
        self._future = future
        self.free: dict[str, int] = {name: count for name, count in free if count}
        self.total = sum(self.free.values())
        self._nodes: list[list[str]] = [[] for _ in range(1 + max(self.free.values(), default=0))]
        for name in sorted(self.free):
            self._nodes[self.free[name]].append(name)

    def beside(self, excluded: Iterable[str], spare: Mapping[str, int]) -> int:
        """Return how many slots are free on nodes that are not in `excluded`.

        Of a node in `spare` at most the number of slots given there is counted.
        """
        beyond = sum(max(0, self.free.get(name, 0) - most) for name, most in spare.items() if name not in excluded)
        return self.total - beyond - sum(self.free.get(name, 0) for name in excluded)

    def place(
        self, slots: int, one_node: bool, excluded: Collection[str] = (), spare: Mapping[str, int] = NONE
    ) -> SlotsByNode | None:
        """Return free slots for a gang of `slots`, as (node, number of slots) pairs; None if the gang does not fit.

        With `one_node`, all slots are on one node. Nodes in `excluded` are not used, and of a node in `spare` at most
        the number of slots given there.
        """
        if self._future and (found := self._place(slots, one_node, self._future.union(excluded), spare)) is not None:
            return found
        return self._place(slots, one_node, excluded, spare)

    def _place(
        self, slots: int, one_node: bool, excluded: Collection[str], spare: Mapping[str, int]
    ) -> SlotsByNode | None:
        if self.beside(excluded, spare) < slots:
            return None
        odd = {name: min(self.free.get(name, 0), most) for name, most in spare.items()} | dict.fromkeys(excluded, 0)
        tightest = self._tightest(slots, odd)
        if tightest is not None:
            return ((tightest, slots),)
        if one_node:
            return None
        chosen: list[tuple[str, int]] = []
        for count, name in self._roomiest(odd):
            chosen.append((name, count))
            slots -= count
            last = self._tightest(slots, odd, {name for name, _ in chosen}) if slots < len(self._nodes) else None
            if last is not None:
                return (*chosen, (last, slots))
            if slots == 0:
                break
        return tuple(chosen)

    def take(self, allocation: SlotsByNode) -> None:
        """Mark the slots of an allocation as taken."""
        for name, count in allocation:
            left = self.free[name] - count
            names = self._nodes[self.free[name]]
            del names[bisect_left(names, name)]
            self.free[name] = left
            self.total -= count
            if left:
                insort(self._nodes[left], name)
            else:
                del self.free[name]

    def give(self, allocation: SlotsByNode) -> None:
        """Mark the slots of an allocation as free again."""
        for name, count in allocation:
            before = self.free.get(name, 0)
            if before:
                names = self._nodes[before]
                del names[bisect_left(names, name)]
            self.free[name] = before + count
            self.total += count
            self._nodes += [[] for _ in range(before + count + 1 - len(self._nodes))]
            insort(self._nodes[before + count], name)

    def _tightest(self, slots: int, odd: Mapping[str, int], beside: Collection[str] = ()) -> str | None:
        """Return the node with the fewest free slots among those with at least `slots`; None if there is none.

        Among equal nodes it is the first by name. Nodes in `beside` are left out. `odd` has, for some nodes, a number
        of free slots to use instead of the real one.
        """
        even = ((count, name) for count in range(slots, len(self._nodes)) for name in self._nodes[count])
        best = next((each for each in even if each[1] not in odd and each[1] not in beside), None)
        others = [(count, name) for name, count in odd.items() if count >= slots and name not in beside]
        return min([*others, *([best] if best else [])])[1] if others or best else None

    def _roomiest(self, odd: Mapping[str, int]) -> Iterator[tuple[int, str]]:
        """Yield (free slots, node) for all nodes with free slots, those with the most first.

        `odd` has, for some nodes, a number of free slots to use instead of the real one.
        """
        even = (
            (count, name)
            for count in range(len(self._nodes) - 1, 0, -1)
            for name in self._nodes[count]
            if name not in odd
        )
        others = sorted(((count, name) for name, count in odd.items() if count), key=_most_first)
        return heapq.merge(even, others, key=_most_first)


def _most_first(each: tuple[int, str]) -> tuple[int, str]:
    return -each[0], each[1]

"""Move starts to nodes that have their data, among nodes that are equally good: a tie-break after all decisions.

It changes neither which requests start nor how many slots are free on how many nodes afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from kernel_backend.model.resources import Node
from kernel_backend.scheduler.decisions import Start
from kernel_backend.scheduler.placement import SlotsByNode
from kernel_backend.scheduler.requests import RequestKey


def near_data(
    starts: Sequence[Start], nodes: Sequence[Node], free: Mapping[str, int], fixed: Collection[str | None]
) -> dict[RequestKey, SlotsByNode]:
    """Return the placements of the gangs that go to other nodes, which have their data.

    Parameters
    ----------
    starts
        Gangs of a pool that start now.
    nodes
        Nodes of the pool on which gangs may be placed.
    free
        Number of free slots of each node before the starts.
    fixed
        Nodes that are left as they are, because slots there are reserved for a certain request; None is no node.
    """
    there: defaultdict[str, list[Start]] = defaultdict(list)
    for start in starts:
        for name, _ in start.by_node:
            there[name].append(start)
    placed = _Placements(starts, [node for node in nodes if node.name not in fixed and not node.future], free)
    for name, gangs in there.items():
        if name in placed.left and not (len(gangs) > 1 and placed.move(gangs, name)):
            for each in gangs:
                placed.move([each], name)
    return {start.request.key: after for start in starts if (after := placed.of(start)) != start.by_node}


class _Placements:
    """Placements of gangs that start, and the number of slots that are left on each node with them."""

    def __init__(self, starts: Sequence[Start], nodes: Sequence[Node], free: Mapping[str, int]) -> None:
        self._where = {start.request.key: dict(start.by_node) for start in starts}
        self._kinds = {node.name: (node.kind, node.slots) for node in nodes}
        self.left = {node.name: free[node.name] for node in nodes}
        for gang in self._where.values():
            for name, count in gang.items():
                if name in self.left:
                    self.left[name] -= count
        self._alike: defaultdict[tuple[tuple[str, int], int], set[str]] = defaultdict(set)  # by kind, slots and left
        for name, left in self.left.items():
            self._alike[self._kinds[name], left].add(name)

    def of(self, start: Start) -> SlotsByNode:
        return tuple(self._where[start.request.key].items())

    def move(self, gangs: Sequence[Start], name: str) -> bool:
        """Move the parts of gangs on a node to an equally good one with their data; return whether there is one.

        None of the gangs has its data on the first node, and at least one has it on the other. With their slots taken,
        the other node has as many left as the first one has now, and the other way round.
        """
        requests = [each.request for each in gangs]
        if any(each.passed or name in each.request.preferred for each in gangs):
            return False
        count = sum(self._where[each.key][name] for each in requests)
        alike = self._alike[self._kinds[name], self.left[name] + count]
        able = alike & frozenset().union(*(each.preferred for each in requests))
        able = able.difference(*(each.excluded for each in requests), *(self._where[each.key] for each in requests))
        if not able:
            return False
        other = min(able)
        for each in requests:
            self._where[each.key] = {
                other if node == name else node: slots for node, slots in self._where[each.key].items()
            }
        self._swap(name, other)
        return True

    def _swap(self, name: str, other: str) -> None:
        for this, that in ((name, other), (other, name)):
            alike = self._alike[self._kinds[this], self.left[this]]
            alike.remove(this)
            alike.add(that)
        self.left[name], self.left[other] = self.left[other], self.left[name]

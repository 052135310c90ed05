"""Where a gang fits: fewest nodes first, then the tightest fit, whole or not at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kernel_backend.model.resources import Node, Placement, Share


def largest_gang(nodes: Sequence[Node]) -> int:
    """The most slots that one gang can ever have here: all slots of one kind."""
    totals: dict[str, int] = {}
    for node in nodes:
        totals[node.kind] = totals.get(node.kind, 0) + node.slots
    return max(totals.values(), default=0)


def feasible(nodes: Sequence[Node], slots: int, excluded: Collection[str]) -> bool:
    """Whether a gang of `slots` can ever be placed on the nodes that are not excluded."""
    return slots <= largest_gang([node for node in nodes if node.name not in excluded])


def place(nodes: Sequence[Node], free: Mapping[str, Sequence[int]], slots: int) -> Placement | None:
    """The shares of a gang of `slots`, of one kind of device; None where it does not fit now."""
    for kind in sorted({node.kind for node in nodes}):
        candidates = [node for node in nodes if node.kind == kind and free.get(node.name)]
        chosen = _choose(candidates, free, slots)
        if chosen is not None:
            return chosen
    return None


def _choose(nodes: Sequence[Node], free: Mapping[str, Sequence[int]], slots: int) -> Placement | None:
    roomy = [node for node in nodes if len(free[node.name]) >= slots]
    if roomy:
        best = min(roomy, key=lambda node: (len(free[node.name]), node.name))
        return (_share(best, free[best.name][:slots]),)
    if sum(len(free[node.name]) for node in nodes) < slots:
        return None
    shares, missing = [], slots
    for node in sorted(nodes, key=lambda node: (-len(free[node.name]), node.name)):
        taken = free[node.name][:missing]
        shares.append(_share(node, taken))
        missing -= len(taken)
        if missing == 0:
            break
    return tuple(shares)


def _share(node: Node, slots: Sequence[int]) -> Share:
    return Share(node=node.name, kind=node.kind, address=node.address, slots=tuple(slots))

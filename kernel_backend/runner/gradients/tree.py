"""Sum gradients in a fixed binary tree over the logical ranks, for equal bits on any number of real ranks.

An all-reduce in a ring of W ranks adds in an order that depends on W. Here the leaves of the tree are the V shares of
the batch (one per logical rank), whose number is fixed at submission, and two nodes are always added from left to
right. A rank first sums the nodes within its own shares. Then each rank receives one slice of all ranks' nodes, sums
these, and sends the result to all: as many bytes as with a ring.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.amp import GradScaler

from kernel_backend.runner.gradients.reducer import Buckets, ControlFlags, ControlWord, Parameters
from kernel_backend.runner.ranks.backends import Ranks


class Node(NamedTuple):
    """Node of the tree, over the leaves from `start` to `stop` (exclusive); a leaf is one share of the batch."""

    start: int
    stop: int

    @property
    def children(self) -> tuple[Node, Node]:
        """Return the two children of an inner node; the left one covers a power of two leaves."""
        middle = self.start + (1 << ((self.stop - self.start - 1).bit_length() - 1))
        return Node(self.start, middle), Node(middle, self.stop)


def cover(mine: range, node: Node) -> Iterator[Node]:
    """Yield the nodes at or below `node` that cover exactly its leaves in `mine`, from left to right.

    They are the fewest such nodes: a node is used instead of its two children.
    """
    if node.stop <= mine.start or node.start >= mine.stop:
        return
    if mine.start <= node.start and node.stop <= mine.stop:
        yield node
        return
    for child in node.children:
        yield from cover(mine, child)


def total(parts: Mapping[Node, Tensor], node: Node) -> Tensor:
    """Return the sum of the leaves under `node`; some of the tensors in `parts` are overwritten.

    `parts` has the sums of some nodes, which together cover all leaves of `node`.
    """
    if node in parts:
        return parts[node]
    left, right = node.children
    return total(parts, left).add_(total(parts, right))


class TreeGradients(Buckets):
    """Gradients of all logical ranks, summed in a binary tree; this rank computes some of the leaves."""

    def __init__(
        self, parameters: Parameters, scaler: GradScaler, ranks: Ranks, per_rank: Sequence[range], name: str = "tree"
    ) -> None:
        """Set up the tree over all logical ranks.

        `per_rank` holds the range of logical ranks that each rank computes, in the order of the ranks; `name` is unique
        within a training.
        """
        super().__init__(parameters, scaler, multiple=len(per_rank))
        self._ranks, self._mine, self._name = ranks, per_rank[ranks.rank], name
        self._root = Node(0, per_rank[-1].stop)
        self._covers = [tuple(cover(mine, self._root)) for mine in per_rank]
        self._sums = [_Sums(self._covers[ranks.rank], bucket.wide) for bucket in self._buckets]
        self._done = 0  # number of shares computed in this step

    def begin(self) -> None:
        """Begin a step: discard the sums of the previous step."""
        self._done = 0
        for sums in self._sums:
            sums.begin()

    def add(self, loss: Tensor | None, samples: int, total: int, flags: ControlFlags) -> None:
        """Compute the gradients of this rank's next share, and sum every tree node whose leaves are now all computed.

        `loss` is the mean over the share's `samples`, None for an empty share; the batch has `total` samples. `flags`
        are this rank's requests.
        """
        for sums in self._sums:
            sums.make_room()
        self._open()
        self._compute(loss, samples, total, flags)
        self._mark_touched()
        for bucket, sums in zip(self._buckets, self._sums, strict=True):
            bucket.widen()
            sums.add(self._mine.start + self._done)
        self._done += 1

    def finish(self) -> ControlWord:
        """Sum the nodes of all ranks to the gradients of the global batch; return sample count, mean loss and flags."""
        self._refuse_thawed()
        for number, (bucket, sums) in enumerate(zip(self._buckets, self._sums, strict=True)):
            alone = self._ranks.size == 1
            bucket.take(sums.nodes[self._root] if alone else self._exchange(sums.nodes, f"{self._name}.{number}"))
        return self._read_word()

    def _exchange(self, nodes: Mapping[Node, Tensor], name: str) -> Tensor:
        own = [nodes[node].view(self._ranks.size, -1) for node in self._covers[self._ranks.rank]]
        length = own[0].shape[1]  # of a slice
        sent = own[0].reshape(-1) if len(own) == 1 else torch.stack(own, 1).reshape(-1)
        counts = [len(nodes) * length for nodes in self._covers]
        got = self._ranks.all_to_all(sent, [len(own) * length] * self._ranks.size, counts, name)
        order = [node for nodes in self._covers for node in nodes]
        summed = total(dict(zip(order, got.view(-1, length), strict=True)), self._root)
        return self._ranks.all_gather(summed, name)


class _Sums:
    """Sums at the nodes of this rank's part of the tree, for one bucket (a flat tensor of gradients).

    Memory is reused, since allocating takes as long as summing. Leaves arrive one after the other in the bucket's
    memory; a leaf that is needed longer is copied before the next one arrives.
    """

    def __init__(self, tops: Sequence[Node], leaf: Tensor) -> None:
        self.nodes: dict[Node, Tensor] = {}
        self._tops, self._leaf = tops, leaf
        self._free: list[Tensor] = []

    def begin(self) -> None:
        """Discard the sums of the previous step, and keep their memory for reuse."""
        self._free += [each for each in self.nodes.values() if each is not self._leaf]
        self.nodes.clear()

    def make_room(self) -> None:
        """Copy the gradients of the previous leaf out of the bucket's memory, which the next leaf overwrites.

        Nothing is copied if they were added to a sum already.
        """
        for node, tensor in self.nodes.items():
            if tensor is self._leaf:
                room = self._free.pop() if self._free else torch.empty_like(tensor)
                self.nodes[node] = room.copy_(tensor)

    def add(self, leaf: int) -> None:
        """Take the bucket's present content as the gradients of leaf `leaf`, and sum the nodes that end with it."""
        self.nodes[Node(leaf, leaf + 1)] = self._leaf
        top = next(node for node in self._tops if node.start <= leaf < node.stop)
        for node in reversed(list(_ending_at(top, leaf + 1))):
            left, right = (self.nodes.pop(child) for child in node.children)
            self.nodes[node] = left.add_(right)
            if right is not self._leaf:
                self._free.append(right)


def _ending_at(node: Node, stop: int) -> Iterator[Node]:
    """Yield the inner nodes under `node` whose last leaf is `stop - 1`, from the largest to the smallest."""
    while node.stop - node.start > 1:
        if node.stop == stop:
            yield node
        node = next(child for child in node.children if child.start < stop <= child.stop)


def shares_of(logical: int, size: int) -> list[range]:
    """Return, for each of `size` ranks, the range of logical ranks (of `logical`) that it computes.

    Ranges are consecutive, and as equal in length as possible.
    """
    bounds = [rank * logical // size for rank in range(size + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(bounds)]

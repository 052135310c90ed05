"""Test that a sum over logical ranks has one order, whichever process computes them."""

from __future__ import annotations

import copy
import itertools
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import nn
from torch.amp import GradScaler

from kernel_backend.runner.gradients.reducer import ControlFlags
from kernel_backend.runner.gradients.tree import Node, TreeGradients, cover, shares_of, total
from kernel_backend.runner.ranks.backends import SingleRank

OFF = GradScaler("cpu", enabled=False)


def leaves(count, size=5):
    generator = torch.Generator().manual_seed(count)
    return [torch.randn(size, generator=generator) * 10.0**index for index in range(count)]


def straight(parts):
    """Return the tree's sum, computed directly by its definition."""
    if len(parts) == 1:
        return parts[0].clone()
    left = 1 << ((len(parts) - 1).bit_length() - 1)
    return straight(parts[:left]) + straight(parts[left:])


@pytest.mark.parametrize("count", range(1, 17))
def test_nodes_that_cover_any_split_add_up_to_the_same_bits(count):
    expected = straight(leaves(count))
    for size in range(1, count + 1):
        parts = {}
        for mine in shares_of(count, size):
            for node in cover(mine, Node(0, count)):
                parts[node] = straight(leaves(count)[node.start : node.stop])
        assert torch.equal(total(parts, Node(0, count)), expected)


def test_every_logical_rank_has_one_place_and_shares_differ_by_one_at_most():
    for count, size in itertools.product(range(1, 9), range(1, 9)):
        shares = shares_of(count, size)
        assert [rank for share in shares for rank in share] == list(range(count))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


class Together:
    """Process group of threads in this process."""

    def __init__(self, size):
        self.size, self.local_rank = size, 0
        self.barrier = Barrier(size)
        self.box = [None] * size

    def rank_of(self, rank):
        ranks = object.__new__(Together)
        ranks.__dict__.update(self.__dict__, rank=rank)
        return ranks

    def _everyones(self, value):
        self.box[self.rank] = value
        self.barrier.wait()
        found = list(self.box)
        self.barrier.wait()
        return found

    def all_to_all(self, tensor, sends, receives, name):
        pieces = [sent.split(counts)[self.rank] for sent, counts in self._everyones((tensor, list(sends)))]
        assert [len(piece) for piece in pieces] == list(receives)
        return torch.cat(pieces)

    def all_gather(self, tensor, name):
        return torch.cat(self._everyones(tensor))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 1)
        self.idle = nn.Linear(2, 2)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


torch.manual_seed(3)
NET = Net()


def gradients_at(size, logical, samples=11, dtype=torch.float32):
    """Return rank 0's gradients and control word for a batch that `size` threads compute as `logical` ranks."""
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(samples, 4, generator=generator).to(dtype)
    together, everyones = Together(size), shares_of(logical, size)
    bounds = [rank * samples // logical for rank in range(logical + 1)]

    def work(rank):
        net = copy.deepcopy(NET).to(dtype)
        ranks = SingleRank() if size == 1 else together.rank_of(rank)
        tree = TreeGradients(dict(net.named_parameters()), OFF, ranks, everyones)
        for larger in (3.0, 2.0, 1.0):  # a step finds what the one before has left
            if larger == 2.0:
                net.zero_grad()  # as some optimizers do in their step
            tree.begin()
            for own in everyones[rank]:
                mine = data[bounds[own] : bounds[own + 1]] * larger
                loss = net(mine).square().mean() if len(mine) else None
                tree.add(loss, len(mine), samples, ControlFlags(report=own == 0))
            word = tree.finish()
        return {name: each.grad for name, each in net.named_parameters()}, word

    with ThreadPoolExecutor(size) as pool:
        results = list(pool.map(work, range(size)))
    for grads, word in results[1:]:
        assert word == results[0][1]
        assert all(torch.equal(grads[name], grad) for name, grad in results[0][0].items() if grad is not None)
    return results[0]


@pytest.mark.parametrize(
    ("logical", "dtype"),
    [*((count, torch.float32) for count in (1, 2, 3, 4, 6, 13)), (4, torch.bfloat16), (6, torch.float16)],
)
def test_gradients_of_logical_ranks_are_equal_at_any_number_of_real_ones(logical, dtype):
    alone, word = gradients_at(1, logical, dtype=dtype)
    assert (word.samples, word.flags) == (11, ControlFlags(report=True))
    assert alone["idle.weight"] is None
    for size in range(2, min(logical, 4) + 1):
        grads, others = gradients_at(size, logical, dtype=dtype)
        assert others == word
        for name, grad in alone.items():
            assert (grad is None and grads[name] is None) or torch.equal(grad, grads[name]), (name, size)


def test_the_tree_gives_the_gradient_of_the_whole_batch():
    grads, word = gradients_at(2, 4)
    net = copy.deepcopy(NET)
    loss = net(torch.randn(11, 4, generator=torch.Generator().manual_seed(1))).square().mean()
    loss.backward()
    assert word.loss == pytest.approx(loss.item(), rel=1e-6)
    torch.testing.assert_close(grads["first.weight"], net.first.weight.grad)


def test_sums_of_16_bits_are_rounded_once():
    """In bfloat16 256 + 1 is 256; rounding after each addition would give 258."""
    net = nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    tree = TreeGradients(dict(net.named_parameters()), OFF, SingleRank(), shares_of(4, 1))
    tree.begin()
    for value in (1024.0, 4.0, 4.0, 4.0):
        tree.add(net(torch.full((1, 1), value, dtype=torch.bfloat16)).sum(), 1, 4, ControlFlags())
    tree.finish()
    assert net.weight.grad.item() == torch.tensor(259.0).bfloat16() == 260.0

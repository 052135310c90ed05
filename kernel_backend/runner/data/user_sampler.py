"""Draw indices from a user's sampler; the indices of an epoch are identical on every call and every rank."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import xxhash
from torch import Tensor
from torch.utils.data import RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.determinism.generators import GeneratorDraws
from kernel_backend.runner.determinism.random_states import RandomStates

_LEAST_BOUND = 1_000_000  # at least this many indices are drawn before an epoch counts as infinite


class SampledOrder:
    """Sample indices of each epoch in the user's order: the user's sampler draws them, seeded by seed and epoch."""

    def __init__(self, sampler: Any, role: str, samples: int, seed: int, tag: str) -> None:
        """Draw the first epoch twice; raise InvalidDefinition if equal seeds give different indices.

        `role` names the user's function that returned the sampler. `samples` is the number of samples in the dataset.
        `tag` is mixed into the random seeds, so that training and validation data draw different numbers.
        """
        self._sampler, self._role = sampler, role
        self._bound = max(_LEAST_BOUND, 100 * samples)
        self._draws = GeneratorDraws(sampler, seed, f"sampler {tag}")
        first, again = self._drawn(0), self._drawn(0)
        if not torch.equal(first, again):
            raise self._refused(
                "gives other indices when it is asked again with the same random numbers, so a training that is "
                "interrupted would go on with others: let it draw them from torch, numpy or random in its __iter__"
            )
        if not len(first):
            raise self._refused("gives no index")
        self.count = len(first)
        self.digest = xxhash.xxh3_128_hexdigest(first.numpy().tobytes())  # of the first epoch's indices

    def epoch(self, number: int) -> Tensor:
        """Return the indices of epoch `number` as int64.

        Raises InvalidDefinition if their number differs from that of epoch 0.
        """
        found = self._drawn(number)
        if len(found) != self.count:
            raise self._refused(
                f"gives {len(found):,} indices in epoch {number + 1}, and {self.count:,} in the first: all epochs must "
                "have as many, for the place in the data is counted in steps"
            )
        return found

    def _drawn(self, epoch: int) -> Tensor:
        with RandomStates().aside():
            self._draws.look()
            self._draws.at(epoch)
            if callable(set_epoch := getattr(self._sampler, "set_epoch", None)):
                set_epoch(epoch)
            drawn = list(itertools.islice(self._sampler, self._bound + 1))
        if len(drawn) > self._bound:
            raise self._refused(f"gives more than {self._bound:,} indices: an epoch must end")
        try:
            return torch.tensor([each.__index__() for each in drawn], dtype=torch.int64)
        except (AttributeError, TypeError):
            raise self._refused("gives what is no index: only whole numbers can be shared out to the slots") from None

    def _refused(self, why: str) -> InvalidDefinition:
        return InvalidDefinition(f"the sampler of {self._role}() (a {type(self._sampler).__name__}) {why}")


def own_sampler(sampler: Any, samples: int | None) -> Any:
    """Return the sampler of a user's DataLoader; None if Daylight's own permutation replaces that sampler.

    The permutation replaces the samplers that a DataLoader creates by itself, and torch's DistributedSampler.
    """
    plain = type(sampler) is SequentialSampler or isinstance(sampler, DistributedSampler)
    if type(sampler) is RandomSampler:
        plain = not sampler.replacement and sampler.num_samples == samples
    return None if plain else sampler

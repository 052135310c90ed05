"""Sum per-sample validation values in float64 and divide by the sample count, at any number of ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.ranks.backends import Ranks


class Sums:
    """Sums of validation values and their sample counts, by logical rank and name of the value."""

    def __init__(self) -> None:
        # Sums of values on a GPU stay there until the end, as each read would wait for it.
        self._sums: dict[int, dict[str, tuple[Tensor | float, int]]] = {}

    def add(self, name: str, value: Any, count: int, logical: int = 0) -> None:
        """Add a value for `count` samples: a tensor with an entry for each sample, or a number, which is their mean.

        `logical` is the logical rank to which the samples belong. Raises InvalidDefinition for a tensor of another
        length.
        """
        mine = self._sums.setdefault(logical, {})
        total, samples = mine.get(name, (0.0, 0))
        mine[name] = total + _sum(name, value, count), samples + count

    def __bool__(self) -> bool:
        """Return True if any value was added."""
        return bool(self._sums)

    def means(self, ranks: Ranks) -> dict[str, float]:
        """Return the mean of each value over the samples of all ranks, by name; all ranks call it.

        Values are added in the order of the logical ranks. So the result does not depend on which process computes
        which.
        """
        merged: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        mine = {
            rank: {name: (float(total), samples) for name, (total, samples) in sums.items()}
            for rank, sums in self._sums.items()
        }
        per_rank = [each for sums in ranks.all_gather_object(mine) for each in sums.items()]
        for _, sums in sorted(per_rank, key=lambda each: each[0]):
            for name, pair in sums.items():
                merged[name].append(pair)
        return {name: _mean(pairs) for name, pairs in merged.items()}


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Put these models in evaluation mode, without gradients, for the `with` block.

    After the block, each module gets its own earlier mode back.
    """
    modes = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def share(tensors: Sequence[Tensor], ranks: Ranks) -> None:
    """Overwrite the tensors (of any dtypes) on all ranks with those of rank 0, in one broadcast; all ranks call it."""
    if ranks.size == 1 or not tensors:
        return
    with torch.no_grad():
        device = max((each.device for each in tensors), key=lambda device: device.type != "cpu")  # nccl needs a GPU
        flat = torch.cat([each.detach().to(device).contiguous().reshape(-1).view(torch.uint8) for each in tensors])
        ranks.broadcast(flat)
        start = 0
        for each in tensors:
            part = flat[start : start + each.nbytes].clone()  # copied, as a view with another dtype must be aligned
            each.copy_(part.view(each.dtype).view(each.shape))
            start += each.nbytes


def number(name: str, value: Any) -> float:
    """Return the value of metric `name` as a float; raise InvalidDefinition if it is not a single number."""
    if isinstance(value, Tensor):
        if value.numel() == 1:
            return float(value.detach())
        kind = f"a tensor of shape {tuple(value.shape)}"
    else:
        try:
            return float(value)
        except (TypeError, ValueError):
            kind = f"a {type(value).__name__}"
    raise InvalidDefinition(f"metric {name} is {kind}: return a tensor with one value per sample, or a number")


def _sum(name: str, value: Any, count: int) -> Tensor | float:
    if not isinstance(value, Tensor):
        return number(name, value) * count
    values: Tensor = value.detach().double()
    if values.numel() == 1:
        return values.reshape(()) * count
    if len(values) != count:
        raise InvalidDefinition(
            f"metric {name} has {len(values)} values for a batch of {count} samples: "
            "return one value a sample, or a number"
        )
    return values.reshape(count, -1).mean(1).sum()


def _mean(pairs: Sequence[tuple[float, int]]) -> float:
    return sum(total for total, _ in pairs) / sum(samples for _, samples in pairs)

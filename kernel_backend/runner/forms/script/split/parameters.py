"""Run a module with other tensors in place of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn


def trained(module: nn.Module) -> list[Tensor]:
    """Return the parameters of a module that require gradients, each once.

    Within `torch.func.functional_call`, these are the plain tensors that it has put in place of the parameters.
    """
    found = {id(each): each for part in module.modules() for each in part._parameters.values() if each is not None}
    return [each for each in found.values() if each.requires_grad]


@contextmanager
def replaced(
    module: nn.Module, replace: Callable[[Sequence[Tensor]], tuple[list[Tensor], list[Tensor]]]
) -> Iterator[list[Tensor]]:
    """Run the `with` block with other tensors in place of the module's trained parameters.

    `replace` gets these parameters and returns two lists: the tensors to use instead, and tensors for the `with` block.
    """
    before = trained(module)
    after, other = replace(before)
    new = {id(old): each for old, each in zip(before, after, strict=True)}
    places = [
        (part, name, each)
        for part in module.modules()
        for name, each in part._parameters.items()
        if each is not None and id(each) in new
    ]
    recurrent = [(part, part._flat_weights) for part in module.modules() if isinstance(part, nn.RNNBase)]
    for part, name, each in places:
        part._parameters[name] = new[id(each)]  # type: ignore[assignment]
    for part, weights in recurrent:
        part._flat_weights = [new.get(id(weight), weight) for weight in weights]
    try:
        yield other
    finally:
        for part, name, each in places:
            part._parameters[name] = each
        for part, weights in recurrent:
            part._flat_weights = weights

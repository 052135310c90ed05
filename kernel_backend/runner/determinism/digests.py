"""Compute digests of a tensor by dtype, shape and values, and of a model's weights tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable

import xxhash
from torch import Tensor, nn

from kernel_backend.checkpoints.streams import Digesting
from kernel_backend.checkpoints.writer import can_hold, pieces
from kernel_backend.model.facts import Weights


def tensor_digest(tensor: Tensor) -> str:
    """Return a digest (xxh3-128, in hex) of the tensor's dtype, shape and values.

    Raises DaylightError for a tensor that no checkpoint can hold.
    """
    seen = Digesting()
    for piece in pieces({"": tensor}):
        seen.take(piece)
    return seen.digest


def weights(
    model: nn.Module, beside: dict[str, nn.Module], whole: Callable[[Tensor], Tensor] = lambda tensor: tensor
) -> Weights:
    """Return digests, by name, of the parameters and buffers of a model and of the modules in `beside`.

    Tensors that no checkpoint can hold are left out, such as lazy ones, which the first batch initializes. `whole` is
    called with each parameter and returns the tensor to digest; for a sharded parameter, it gathers the tensor from all
    ranks.
    """
    modules = {"": model} | {f"{name}.": module for name, module in beside.items()}
    tensors = {
        f"{prefix}{name}": tensor_digest(whole(tensor))
        for prefix, module in modules.items()
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
        if can_hold(tensor)
    }
    return Weights(digest=xxhash.xxh3_128_hexdigest(repr(sorted(tensors.items())).encode()), tensors=tensors)

"""Shard a model's parameters over the ranks with torch's FSDP2 (`--strategy fsdp2`).

A rank keeps some rows of each parameter, its gradient and its optimizer state. An FSDP unit is a module whose
parameters are gathered for its forward and backward pass, and freed after each. So a rank needs memory for its rows of
everything, and for the largest unit as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from kernel_backend.runner.ranks.backends import Ranks

# A unit has at least this fraction of all bytes, or this many bytes: few transfers, and little memory for whole units.
UNITS, LARGE = 32, 4 << 20


def shard(model: nn.Module, ranks: Ranks, device: torch.device) -> None:
    """Shard the parameters of a model over all ranks, in place."""
    mesh = init_device_mesh(device.type, (ranks.size,))
    for unit in [*units(model), model]:
        sharded = fully_shard(unit, mesh=mesh, reshard_after_forward=True)
        # Losses are weighted by their fraction of the global batch already.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)
        if device.type == "cpu":
            # By default FSDP gathers the next unit during the backward pass of this one. On the CPU torch waits for the
            # gather, so that it saves no time and needs memory for one more whole unit. Naming this unit avoids it.
            sharded.set_modules_to_backward_prefetch([sharded])


def units(model: nn.Module) -> list[nn.Module]:
    """Return the modules that FSDP shards as units, inner ones first.

    A unit's parameters are gathered together for its computation. Candidates are torch's own layers and the elements of
    `nn.Sequential` and `nn.ModuleList`; those with enough bytes become units. A module that shares a parameter with
    another does not. All other parameters belong to the unit of the model itself.
    """
    least = min(sum(each.nbytes for each in model.parameters()) / UNITS, LARGE)
    shared = _shared(model)
    found: list[nn.Module] = []
    taken: set[int] = set()
    for module in _inner_first(model):
        own = {id(each): each.nbytes for each in module.parameters() if id(each) not in taken}
        if own and sum(own.values()) >= least and not shared & own.keys():
            found.append(module)
            taken |= own.keys()
    return found


def _inner_first(module: nn.Module) -> Iterator[nn.Module]:
    """Yield those submodules that are certainly run by calling them (`module(x)`), inner ones before outer ones.

    FSDP gathers a unit's parameters when the unit is called. Some modules only use the parameters of a submodule
    without calling it, as torch's attention does.
    """
    for child in module.children():
        yield from _inner_first(child)
        holds = isinstance(module, nn.Sequential | nn.ModuleList)
        # A torch layer may use its children's parameters without calling them, as attention does.
        layer = not _is_torchs(module) and _is_torchs(child) and not any(child.children())
        if (holds or layer) and not isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield child


def _is_torchs(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")


def _shared(model: nn.Module) -> set[int]:
    """Return the `id()` of each parameter that several modules share."""
    seen: set[int] = set()
    found: set[int] = set()
    for module in model.modules():
        for each in module.parameters(recurse=False):
            (found if id(each) in seen else seen).add(id(each))
    return found

"""Pickle a torch module without the values of its weights, and make a module from the pickle."""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Collection
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.definition.lambdas import LAMBDA, made_of, source_of
from kernel_backend.snapshots.object_graph import JOB
from kernel_backend.snapshots.torch_modules import reduced_module

_HOOKS = ("torch.nn.utils.weight_norm", "torch.nn.utils.spectral_norm")  # before there were parametrizations


def skeleton(module: nn.Module) -> Tensor | None:
    """Return the pickle of a module without the values of its weights, as a tensor of bytes.

    It has the values of tensors that are not in the module's state_dict, such as tables and masks. Equal modules have
    equal bytes, as nothing is pickled by reference. Returns None if the module cannot be pickled.
    """
    buffer = io.BytesIO()
    try:
        _Writer(buffer, _weights(module)).dump(module)
    except Exception:  # any error of pickling, such as for a lambda or a cycle
        return None
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def module_of(data: Tensor, names: dict[str, Any]) -> nn.Module:
    """Return the module whose pickle `skeleton` has returned, with zeros in the tensors of its state_dict.

    Classes of the user are taken from `names`; raises KeyError if one is missing.
    """
    found: nn.Module = _Reader(io.BytesIO(data.numpy().tobytes()), names).load()
    return found


def _weights(module: nn.Module) -> set[int]:
    """Return the ids of the tensors that a module's state_dict has, or that torch computes of these in each forward."""
    found: set[int] = set()
    for each in module.modules():
        parts = vars(each)
        found |= {id(tensor) for tensor in parts["_parameters"].values()}
        persistent = parts["_buffers"].keys() - parts["_non_persistent_buffers_set"]
        found |= {id(parts["_buffers"][name]) for name in persistent}
        hooks = [hook for hook in parts["_forward_pre_hooks"].values() if type(hook).__module__ in _HOOKS]
        found |= {id(getattr(each, hook.name)) for hook in hooks}
    return found


class _Writer(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, weights: Collection[int]) -> None:
        super().__init__(buffer, protocol=5)
        self.fast = True
        self._weights = weights
        self._tensors: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        """Return what is pickled in place of a tensor, class or function; None for objects that are pickled as usual.

        For a tensor, it is its number, shape and type, and its value if it is no weight; for a class or function of the
        program, its qualified name or, for a lambda, its source.
        """
        if isinstance(obj, type | FunctionType) and obj.__module__ in JOB:
            source = source_of(obj) if isinstance(obj, FunctionType) else None
            return obj.__qualname__ if source is None else (LAMBDA, source)
        if not isinstance(obj, Tensor):
            return None
        known, number = id(obj) in self._tensors, self._tensors.setdefault(id(obj), len(self._tensors))
        value = () if known or id(obj) in self._weights else (_bytes(obj),)
        return number, tuple(obj.shape), str(obj.dtype), isinstance(obj, nn.Parameter), obj.requires_grad, *value

    def reducer_override(self, obj: Any) -> Any:
        """Return how a module is made again that has, or had, parametrizations of torch."""
        return reduced_module(obj)


def _bytes(tensor: Tensor) -> bytes:
    buffer = io.BytesIO()
    torch.save(tensor.detach().cpu().clone(), buffer)
    return buffer.getvalue()


class _Reader(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, names: dict[str, Any]) -> None:
        super().__init__(buffer)
        self._names, self._tensors = names, dict[int, Tensor]()

    def persistent_load(self, pid: Any) -> Any:
        """Return the object for `pid`: a tensor, of zeros if it is a weight, or the program's class or function."""
        if isinstance(pid, str):
            first, *rest = pid.split(".")
            return functools.reduce(getattr, rest, self._names[first])
        if pid[0] == LAMBDA:
            return made_of(pid[1], self._names)
        number, shape, dtype, is_parameter, grad, *value = pid
        if number not in self._tensors:
            if value:
                values = torch.load(io.BytesIO(value[0]), weights_only=True)
            else:
                values = torch.zeros(shape, dtype=getattr(torch, dtype.removeprefix("torch.")))
            self._tensors[number] = nn.Parameter(values, grad) if is_parameter else values
        return self._tensors[number]

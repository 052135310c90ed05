"""Pickle a torch module without its tensors' values, and make a module from the pickle."""

from __future__ import annotations

import functools
import io
import pickle
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.definition.lambdas import LAMBDA, made_of, source_of
from kernel_backend.snapshots.object_graph import JOB


def skeleton(module: nn.Module) -> Tensor | None:
    """Return the pickle of a module without its tensors' values, as a tensor of bytes; None if it cannot be pickled.

    Equal modules have equal bytes, as nothing is pickled by reference.
    """
    buffer = io.BytesIO()
    try:
        _Writer(buffer).dump(module)
    except Exception:  # any error of pickling, such as for a lambda or a cycle
        return None
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def module_of(data: Tensor, names: dict[str, Any]) -> nn.Module:
    """Return the module whose pickle `skeleton` has returned, with zeros in all tensors.

    Classes of the user are taken from `names`; raises KeyError if one is missing.
    """
    found: nn.Module = _Reader(io.BytesIO(data.numpy().tobytes()), names).load()
    return found


class _Writer(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=5)
        self.fast = True
        self._tensors: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        """Return what is pickled in place of a tensor, class or function; None for objects that are pickled as usual.

        For a tensor, it is its number, shape and type; for a class or function of the program, its qualified name or,
        for a lambda, its source.
        """
        if isinstance(obj, type | FunctionType) and obj.__module__ in JOB:
            source = source_of(obj) if isinstance(obj, FunctionType) else None
            return obj.__qualname__ if source is None else (LAMBDA, source)
        if not isinstance(obj, Tensor):
            return None
        number = self._tensors.setdefault(id(obj), len(self._tensors))
        return number, tuple(obj.shape), str(obj.dtype), isinstance(obj, nn.Parameter), obj.requires_grad


class _Reader(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, names: dict[str, Any]) -> None:
        super().__init__(buffer)
        self._names, self._tensors = names, dict[int, Tensor]()

    def persistent_load(self, pid: Any) -> Any:
        """Return the object for `pid`: a tensor of zeros, or the program's class or function of this name."""
        if isinstance(pid, str):
            first, *rest = pid.split(".")
            return functools.reduce(getattr, rest, self._names[first])
        if pid[0] == LAMBDA:
            return made_of(pid[1], self._names)
        number, shape, dtype, is_parameter, grad = pid
        if number not in self._tensors:
            values = torch.zeros(shape, dtype=getattr(torch, dtype.removeprefix("torch.")))
            self._tensors[number] = nn.Parameter(values, grad) if is_parameter else values
        return self._tensors[number]

"""Pickle a torch module without the values of its weights, and make a module from the pickle."""

from __future__ import annotations

import dis
import functools
import io
import pickle
from collections.abc import Collection
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.definition.lambdas import LAMBDA, made_of, source_of
from kernel_backend.secret_scan import is_secret
from kernel_backend.snapshots.object_graph import JOB
from kernel_backend.snapshots.torch_modules import reduced_module

_HOOKS = ("torch.nn.utils.weight_norm", "torch.nn.utils.spectral_norm")  # before there were parametrizations
_MOST = 1000  # characters or elements of a variable that a module's methods read


def skeleton(module: nn.Module) -> Tensor | None:
    """Return the pickle of a module without the values of its weights, as a tensor of bytes.

    It has the values of tensors that are not in the module's state_dict, such as tables and masks, and the numbers and
    texts that the module's methods read as global variables. Equal modules have equal bytes, as nothing is pickled by
    reference. Returns None if the module cannot be pickled.
    """
    buffer = io.BytesIO()
    try:
        writer = _Writer(buffer, _weights(module))
        writer.dump(module)
        writer.dump(_constants(module))
    except Exception:  # any error of pickling, such as for a lambda or a cycle
        return None
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def module_of(data: Tensor, names: dict[str, Any]) -> nn.Module:
    """Return the module whose pickle `skeleton` has returned, with zeros in the tensors of its state_dict.

    Classes of the user are taken from `names`; raises KeyError if one is missing. Variables that their methods read,
    and that the program has computed, are added to `names`.
    """
    reader = _Reader(io.BytesIO(data.numpy().tobytes()), names)
    found: nn.Module = reader.load()
    with suppress(EOFError):  # of a checkpoint of an earlier version
        for name, value in reader.load().items():
            names.setdefault(name, value)
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


def _constants(module: nn.Module) -> dict[str, Any]:
    """Return the values of the program's variables that the methods of a module's own classes may read, by name.

    They are numbers, short texts and the like, and no secrets; a device is the CPU, on which a loaded module is.
    """
    kinds = {kind: None for part in module.modules() for kind in type(part).__mro__ if kind.__module__ in JOB}
    queue = [getattr(each, "fget", getattr(each, "__func__", each)) for kind in kinds for each in vars(kind).values()]
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for function in queue:
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        for name in _names(function.__code__) & function.__globals__.keys():
            value = function.__globals__[name]
            if isinstance(value, FunctionType) and value.__module__ in JOB:
                queue.append(value)
            elif not name.startswith("__") and _is_plain(value) and not is_secret(name, value):
                found[name] = _on_cpu(value)
    return dict(sorted(found.items()))


def _names(code: CodeType) -> set[str]:
    inner = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}.union(*inner)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple | dict):
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        return type(value) in (list, tuple, dict) and len(value) <= _MOST and all(map(_is_plain, parts))
    if isinstance(value, str):
        return len(value) <= _MOST
    return value is None or isinstance(value, bool | int | float | torch.device | torch.dtype)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and value.partition(":")[0] in ("cuda", "mps", "xpu") else value


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

"""Describe how a torch module is put together as JSON and tensors, from which it is made again without a pickle.

The description is read by `portable/model.py`, which travels with every exported model. Modules are made again without
a call of their `__init__`: so they need neither its arguments nor the data that these came from.
"""

from __future__ import annotations

import base64
import copyreg
import enum
import functools
import importlib
import math
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.definition.lambdas import source_of
from kernel_backend.errors import InvalidRequest
from kernel_backend.snapshots.torch_modules import module_parts

DEFINITION = "definition"  # module of the user's own classes in an exported folder
_TENSORS_OF = ("_parameters", "_buffers", "_modules")
_LEFT_OUT = {*_TENSORS_OF, "training"}  # an exported model is in evaluation mode
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType)
_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)


class NotDescribed(InvalidRequest):
    """Error: the model holds a value that only a pickle could hold; the message names it."""


class Structure:
    """Description of one module: `json`, the `tensors` that are no weights, and the `names` of its code.

    `names` are the classes and functions of the training definition, of which `definitions` is the loaded module, and
    of other modules, as `module:qualified.name`; `lambdas` are sources of functions without a name, by names for them.

    Raises NotDescribed for a value that cannot be written.

    Examples
    --------
    >>> found = Structure(nn.Linear(2, 1), None)
    >>> found.json["module"], found.json["state"], sorted(found.names)
    ('torch.nn.modules.linear:Linear', {'in_features': 2, 'out_features': 1}, ['torch.nn.modules.linear:Linear'])
    """

    def __init__(self, module: nn.Module, definitions: types.ModuleType | None) -> None:
        self._own: Mapping[str, Any] = {} if definitions is None else vars(definitions)
        self._own_modules = {"__main__"} | ({definitions.__name__} if definitions is not None else set())
        self._weights: dict[int, str] = {}  # keys in the state_dict, by id of the tensor
        for key, tensor in module.state_dict(keep_vars=True).items():
            self._weights.setdefault(id(tensor), key)
        self._ids: dict[int, int] = {}
        self._held: list[Any] = []  # objects in `_ids`, whose ids no other object may get
        self._fresh = vars(nn.Module())
        self.names: set[str] = set()
        self.lambdas: dict[str, str] = {}
        self.tensors: dict[str, Tensor] = {}
        self.json: Any = self._write(module, "model")

    def _write(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, bool) or type(value) in (int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        for kind, write in self._kinds():
            if isinstance(value, kind):
                return write(value, path)
        if type(value) is list:
            return [self._write(each, f"{path}[{number}]") for number, each in enumerate(value)]
        if type(value) in (tuple, set, frozenset):
            content = [self._write(each, f"{path}[{number}]") for number, each in enumerate(value)]
            return {type(value).__name__: content}
        if type(value) is dict:
            return {"dict": list(self._pairs(value.items(), path))}
        return self._object(value, path)

    def _kinds(self) -> Iterator[tuple[Any, Any]]:
        import numpy

        yield nn.Parameter, self._parameter
        yield Tensor, self._tensor
        yield nn.Module, self._module
        yield numpy.ndarray, self._array
        yield numpy.generic, lambda value, path: self._write(value.item(), path)
        yield bytes, lambda value, _: {"bytes": base64.b64encode(value).decode()}
        yield torch.Size, lambda value, _: {"size": list(value)}
        yield torch.device, lambda value, _: {"device": "cpu"}
        yield _CONSTANTS, lambda value, _: {"torch": str(value).removeprefix("torch.")}
        yield enum.Enum, lambda value, path: {"enum": self._name(type(value), path), "member": value.name}
        yield functools.partial, self._partial
        yield types.MethodType, lambda value, path: {"method": value.__name__, "of": self._write(value.__self__, path)}
        yield _NAMED, lambda value, path: {"name": self._name(value, path)}

    def _parameter(self, value: nn.Parameter, path: str) -> Any:
        if type(value) is not nn.Parameter:
            raise NotDescribed(f"{path} is a {type(value).__name__}, which only its library can write")
        return {"parameter": self._key(value, path), "requires_grad": value.requires_grad}

    def _tensor(self, value: Tensor, path: str) -> Any:
        if type(value) is not Tensor:
            raise NotDescribed(f"{path} is a {type(value).__name__}, which only its library can write")
        if value.layout is not torch.strided or value.is_quantized:
            layout = "quantized" if value.is_quantized else str(value.layout).removeprefix("torch.")
            raise NotDescribed(f"{path} is a {layout} tensor, which safetensors cannot hold: make it dense")
        return {"tensor": self._key(value, path), **({"requires_grad": True} if value.requires_grad else {})}

    def _array(self, value: Any, path: str) -> Any:
        try:
            self.tensors[path] = torch.from_numpy(value.copy())
        except TypeError as error:
            raise NotDescribed(f"{path} is an array of {value.dtype}, which no tensor can hold") from error
        return {"array": path}

    def _key(self, tensor: Tensor, path: str) -> str:
        key = self._weights.get(id(tensor))
        if key is None:
            self.tensors[path] = tensor
            self._weights[id(tensor)] = key = path
            self._held.append(tensor)
        return key

    def _begun(self, value: Any) -> int | None:
        """Return the number of an object that is written already; None, once, for any other."""
        if id(value) in self._ids:
            return self._ids[id(value)]
        self._ids[id(value)] = len(self._ids)
        self._held.append(value)
        return None

    def _module(self, module: nn.Module, path: str) -> Any:
        if (number := self._begun(module)) is not None:
            return {"ref": number}
        of_class, computed, state = module_parts(module)
        node: dict[str, Any] = {"module": self._name(of_class, path), "id": self._ids[id(module)]}
        node |= {"computed": computed} if computed else {}
        changed = {
            key: value
            for key, value in state.items()
            if key not in _LEFT_OUT and not (key in self._fresh and _same(self._fresh[key], value))
        }
        node["state"] = {key: self._write(each, f"{path}.{key}") for key, each in changed.items()}
        for kind in _TENSORS_OF:
            content = {key: self._write(each, f"{path}.{key}") for key, each in vars(module)[kind].items()}
            node |= {kind[1:]: content} if content else {}
        return node

    def _object(self, value: Any, path: str) -> Any:
        if (number := self._begun(value)) is not None:
            return {"ref": number}
        id_ = self._ids[id(value)]
        kind = type(value)
        try:
            made = value.__reduce_ex__(2)
        except Exception as error:  # any error of a class that cannot be copied
            raise NotDescribed(f"{path} is a {kind.__qualname__}, which cannot be written: {error}") from error
        function, args, state, items, pairs = (*made, None, None, None)[:5] if isinstance(made, tuple) else (None,) * 5
        if function is vars(copyreg)["__newobj__"]:
            function, *args = args
            call = False
        elif isinstance(function, type):
            call = True
        else:
            raise NotDescribed(f"{path} is a {kind.__qualname__}, which only a pickle could hold")
        node: dict[str, Any] = {"object": self._name(function, path), "id": id_}
        node |= {"args": [self._write(each, path) for each in args]} if args else {}
        node |= {"state": self._write(state, path)} if state is not None else {}
        node |= {"items": [self._write(each, path) for each in items]} if items is not None else {}
        node |= {"pairs": list(self._pairs(pairs, path))} if pairs is not None else {}
        return node | ({"call": True} if call else {})

    def _partial(self, value: functools.partial[Any], path: str) -> Any:
        return {"partial": [self._write(each, path) for each in (value.func, list(value.args), dict(value.keywords))]}

    def _pairs(self, pairs: Any, path: str) -> Iterator[list[Any]]:
        for key, value in pairs:
            named = f"{path}.{key}" if isinstance(key, str) else f"{path}[{key!r}]"
            yield [self._write(key, path), self._write(value, named)]

    def _name(self, value: Any, path: str) -> str:
        module, qualified = getattr(value, "__module__", None) or "builtins", value.__qualname__
        for place, name in [(module, qualified), (module, value.__name__), *_public(value)]:
            if place in self._own_modules:
                # A lambda has the name of the variable that holds it.
                known = [each for each, other in self._own.items() if other is value] if "<" in name else [name]
                if known and known[0].split(".")[0] in self._own:
                    self.names.add(f"{DEFINITION}:{known[0]}")
                    return f"{DEFINITION}:{known[0]}"
            elif _at(place, name) is value:
                self.names.add(f"{place}:{name}")
                return f"{place}:{name}"
        if isinstance(value, types.FunctionType) and (source := source_of(value)) is not None:
            name = f"_lambda_{len(self.lambdas)}"
            self.lambdas[name] = source
            return f"{DEFINITION}:{name}"
        what = "a function without a name" if "<" in qualified else f"{qualified} of {module}, which has no such name"
        raise NotDescribed(f"{path} is {what}: define it at the top of the cell or in a module")


def _public(value: Any) -> list[tuple[str, str]]:
    """Return where functions of torch are that say another module than the one that exports them."""
    return [(place, value.__name__) for place in ("torch", "torch.nn.functional", "torch._C._nn")]


def _at(module: str, name: str) -> Any:
    try:
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError):
        return None


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and isinstance(one, bool | int | str | dict | set | type(None)) and one == other

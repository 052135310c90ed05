"""Record with which shapes, types and ranges of tensors a training calls its modules, for an export of the model.

Neither the values nor any text of the user's data are recorded.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

_MOST = 32  # modules whose calls are recorded
_DEEPEST = 4  # containers within each other
_WRAPPERS = ("_orig_mod", "module")  # of torch.compile; of DistributedDataParallel and its like


class CallSignatures:
    """Signatures of the modules that a training calls from outside of any other module, by the modules' names.

    They are of each module's first call. What checkpoints hold is what the first attempt has recorded, so that a
    training that was interrupted ends with the same bytes.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[weakref.ref[nn.Module], dict[str, Any]]] = []
        self._seen: set[int] = set()
        self._found: dict[str, Any] = {}
        self._wrapper: Any = None  # what records calls, in place of nn.Module.__call__; None: nothing records
        self._original: Any = None
        self._hook: RemovableHandle | None = None

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over the signatures that a checkpoint holds, in place of recording."""
        self._found = dict(saved)

    def watch(self) -> None:
        """Record calls until an optimizer has taken a step, or `state` is called.

        While a module is called, `nn.Module.__call__` is what it was before: neither compilers nor inner modules see
        that calls are recorded. Call it once more after another part of the runner has replaced that method.
        """
        kind: Any = nn.Module
        original = kind.__call__

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            kind.__call__ = original
            try:
                self._take(module, args, kwargs)
                return original(module, *args, **kwargs)
            finally:
                if self._wrapper is call and kind.__call__ is original:
                    kind.__call__ = call

        self._wrapper, self._original = call, original
        kind.__call__ = call
        if self._hook is None:
            # Removed by `state`: torch iterates over its hooks when it calls them.
            self._hook = register_optimizer_step_post_hook(lambda *_: self._stop())

    def watch_again(self) -> None:
        """Go on recording, if calls are still recorded, after `nn.Module.__call__` was replaced."""
        if self._wrapper is not None:
            self.watch()

    def _stop(self) -> None:
        kind: Any = nn.Module
        if kind.__call__ is self._wrapper:
            kind.__call__ = self._original
        self._wrapper = None

    def state(self, modules: Mapping[str, nn.Module]) -> dict[str, Any]:
        """Return the signatures as JSON, by the name of the called module: `model`, or `model.encoder` for a part."""
        self._stop()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        calls, self._calls = self._calls, []
        if calls:
            names: dict[int, str] = {}
            for name, module in modules.items():
                for path, part in module.named_modules():
                    names.setdefault(id(part), f"{name}.{path}" if path else name)
            for reference, signature in calls:
                called = reference()
                if called is not None and id(called) in names:
                    self._found.setdefault(names[id(called)], signature)
        return self._found

    def _take(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        module = _inner(module)
        if isinstance(module, ParametrizationList):  # torch calls it when it is made
            return
        if id(module) in self._seen or len(self._seen) == _MOST:
            return
        self._seen.add(id(module))
        with suppress(Exception):  # of a tensor that has no values, such as one of vmap
            signature = {"args": [_spec(each) for each in args], "kwargs": _fields(kwargs)}
            self._calls.append((weakref.ref(module), signature))


def _inner(module: nn.Module) -> nn.Module:
    """Return the module that a compiler's or a distributed training's wrapper stands for."""
    for name in _WRAPPERS:
        inner = module._modules.get(name)
        if inner is not None and type(module).__module__.startswith("torch."):
            return _inner(inner)
    return module


@torch.no_grad()
def _spec(value: Any, depth: int = 0) -> dict[str, Any]:
    """Return the JSON that describes an argument: a tensor without its values, a number, or a container of these."""
    if isinstance(value, Tensor):
        return _tensor(value)
    if value is None or isinstance(value, bool | int | float):
        return {"value": value}
    if isinstance(value, list | tuple) and depth < _DEEPEST and type(value) in (list, tuple):
        return {type(value).__name__: [_spec(each, depth + 1) for each in value]}
    if isinstance(value, Mapping) and depth < _DEEPEST and all(isinstance(each, str) for each in value):
        return {"dict": _fields(value, depth + 1)}
    return {"other": f"{type(value).__module__}.{type(value).__qualname__}"}


def _fields(values: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    return {name: _spec(each, depth) for name, each in values.items()}


def _tensor(tensor: Tensor) -> dict[str, Any]:
    spec: dict[str, Any] = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
    if tensor.dtype == torch.bool or tensor.is_complex() or not tensor.numel():
        return spec
    finite = tensor.detach()
    if tensor.is_floating_point():
        finite = torch.nan_to_num(finite.float(), 0.0, 0.0, 0.0)
    low, high = torch.stack(torch.aminmax(finite)).tolist()
    return {**spec, "low": low, "high": high}

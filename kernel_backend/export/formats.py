"""Write an exported model as a program for other runtimes: of `torch.export`, and ONNX."""

from __future__ import annotations

import copy
import inspect
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.errors import InvalidRequest
from kernel_backend.export.examples import Call
from kernel_backend.snapshots.torch_modules import module_parts

FORMATS = ("pt2", "onnx")
_PACKAGES = {"pt2": (), "onnx": ("onnx", "onnxscript", "onnxruntime")}


def check_formats(formats: Sequence[str]) -> None:
    """Raise InvalidRequest for an unknown format, or one whose packages are not installed."""
    for name in formats:
        if name not in FORMATS:
            raise InvalidRequest(f"--format {name}: must be {' or '.join(FORMATS)}")
        missing = [each for each in _PACKAGES[name] if find_spec(each) is None]
        if missing:
            raise InvalidRequest(f'--format {name} needs {", ".join(missing)}: pip install "daylight[export]"')


def write_formats(model: nn.Module, calls: Sequence[Call], folder: Path, formats: Sequence[str]) -> None:
    """Write `model.pt2` and `model.onnx` into a folder, as far as `formats` names them.

    They hold the call of the whole model, with any size of batch. Raises InvalidRequest with the exporter's reason if
    the model cannot be written so, or if the training did not call the model as a whole.
    """
    for name in formats:
        call = next((each for each in calls if not each.path), None)
        if call is None:
            called = "the training called only parts of it" if calls else "none was recorded that can be made anew"
            raise InvalidRequest(f"{name} holds a call of the whole model, and {called}")
        config: Any = getattr(model, "config", None)
        caches = getattr(config, "use_cache", None)
        try:
            if caches:  # a language model's cache of keys is no output of a program
                config.use_cache = False
            logging.disable()  # an exporter says in its log what its error says once more
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _WRITERS[name](model, call, folder / f"model.{name}")
        except Exception as error:  # exporters raise any error, also of the user's code
            raise InvalidRequest(f"this model cannot be written as {name}: {_reason(error)}") from error
        finally:
            logging.disable(logging.NOTSET)
            if caches:
                config.use_cache = caches


def _reason(error: BaseException) -> str:
    """Return the first line of the error from which an exporter's error comes: its own says how to report it."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _pt2(model: nn.Module, call: Call, path: Path) -> None:
    shapes = _dynamic(model, call)
    program = torch.export.export(model, tuple(call.args), call.kwargs, dynamic_shapes=shapes)
    torch.export.save(program, path)


def _onnx(model: nn.Module, call: Call, path: Path) -> None:
    shapes = _dynamic(model, call)
    program: Any = torch.onnx.export(
        _computed(model), tuple(call.args), kwargs=call.kwargs, dynamo=True, dynamic_shapes=shapes, verbose=False
    )
    program.save(path)


def _computed(model: nn.Module) -> nn.Module:
    """Return a module whose parametrized tensors are computed once, as ONNX knows no exponential of a matrix.

    The module itself is left as it is; `remove_parametrizations` of a copy would change it, as they share a class.
    """
    if not any(module_parts(each).computed for each in model.modules()):
        return model
    copied = copy.deepcopy(model)
    for part in list(copied.modules()):
        kind, computed, _ = module_parts(part)
        if computed:
            tensors = {name: getattr(part, name).detach() for name in computed}
            part.__class__ = kind
            del part.parametrizations
            for name, tensor in tensors.items():
                part.register_buffer(name, tensor)
    return copied


_WRITERS: Mapping[str, Callable[[nn.Module, Call, Path], None]] = {"pt2": _pt2, "onnx": _onnx}


def _dynamic(model: nn.Module, call: Call) -> dict[str, Any]:
    """Return the dynamic shapes of a call: the first dimension of each tensor whose size is that of the batch."""
    given = inspect.signature(model.forward).bind(*call.args, **call.kwargs).arguments
    first = next(iter(_tensors(given)), None)
    size = first.shape[0] if first is not None and first.dim() else -1
    return {name: _shape(each, size, torch.export.Dim.DYNAMIC) for name, each in given.items()}


def _tensors(value: Any) -> Any:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _shape(value: Any, size: int, batch: Any) -> Any:
    if isinstance(value, Tensor):
        return {0: batch} if value.dim() and value.shape[0] == size else {}
    if isinstance(value, list | tuple):
        return type(value)(_shape(each, size, batch) for each in value)
    if isinstance(value, dict):
        return {key: _shape(each, size, batch) for key, each in value.items()}
    return None

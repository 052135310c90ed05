"""Make synthetic inputs of a model from the signatures that its training recorded, and record its outputs for them.

No input is the user's data: tensors are drawn anew, with the recorded shapes, types and ranges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kernel_backend.errors import InvalidRequest
from kernel_backend.export.portable import check

_SEED = 0
_MOST_VALUES = 2**22  # of a tensor; larger batches are shortened
_BATCH = 16  # samples, where the training did not record a batch
_FEWEST = 2  # samples of a batch: with one, exporters take the batch's size as fixed


class Call(NamedTuple):
    """Call of a model, or of a part of it at the dotted path `path`, with synthetic inputs and recorded outputs."""

    path: str
    args: list[Any]
    kwargs: dict[str, Any]
    outputs: dict[str, Tensor]


def calls_of(
    model: nn.Module, name: str, signatures: Mapping[str, Any], of_training: Collection[str] = ()
) -> list[Call]:
    """Return the calls of a model, which the training's `signatures` describe by the name of the called module.

    `name` is the model's own name among them; arguments `of_training`, such as labels, are left out. So is a call whose
    inputs cannot be made, such as of an object of the user's. Raises InvalidRequest if the model cannot take the inputs
    that the training gave it.
    """
    found = []
    for called, signature in signatures.items():
        path = called.removeprefix(name).removeprefix(".")
        if called != name and not called.startswith(f"{name}."):
            continue
        if (call := _call(model, path, signature, of_training)) is not None:
            found.append(call)
    return found


def _call(model: nn.Module, path: str, signature: Mapping[str, Any], of_training: Collection[str]) -> Call | None:
    """Return a call with drawn inputs; where another size of batch is not taken, with the recorded one."""
    kwargs_of = {key: spec for key, spec in signature["kwargs"].items() if key not in of_training}
    failed: Exception | None = None
    for batch in dict.fromkeys((_batch(signature), None)):
        draws = torch.Generator().manual_seed(_SEED)
        try:
            args = [_drawn(spec, batch, draws) for spec in signature["args"]]
            kwargs = {key: _drawn(spec, batch, draws) for key, spec in kwargs_of.items()}
        except _NotDrawn:
            return None
        try:
            with steady():
                outputs = check.outputs(model, path, args, kwargs)
        except Exception as error:  # any error of the user's code
            failed = error
        else:
            return Call(path, args, kwargs, outputs) if outputs else None
    raise InvalidRequest(
        f"{path or 'the model'} does not take a batch as in the training, once it is in evaluation mode: "
        f"{type(failed).__name__}: {failed}"
    ) from failed


def keras_calls(model: Any) -> list[Call]:
    """Return a call of a Keras model with inputs from 0 to 1, of the shapes and types that it declares."""
    draws = torch.Generator().manual_seed(_SEED)
    inputs = [
        _drawn(
            {"shape": [size or _BATCH for size in each.shape], "dtype": each.dtype, "high": 1.0, "low": 0.0},
            None,
            draws,
        )
        for each in getattr(model, "inputs", None) or []
    ]
    if not inputs:
        return []
    args = [inputs[0].numpy() if len(inputs) == 1 else [each.numpy() for each in inputs]]
    outputs = {name: torch.from_numpy(each) for name, each in check.outputs(model, "", args, {}).items()}
    return [Call("", [inputs[0] if len(inputs) == 1 else inputs], {}, outputs)]


class _NotDrawn(Exception):
    pass


@contextmanager
def steady() -> Iterator[None]:
    """Compute in the `with` block with one thread, as the check of an exported folder does: sums have one order."""
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.random.set_rng_state(state)


def _tensors(spec: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(spec, list):
        for each in spec:
            yield from _tensors(each)
    elif isinstance(spec, Mapping) and "shape" in spec:
        yield spec
    elif isinstance(spec, Mapping):
        for each in spec.values():
            yield from _tensors(each)


def _batch(signature: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the recorded size of the batch, and the one to draw; None if the inputs can be as they were recorded."""
    first = next(iter(_tensors([signature["args"], signature["kwargs"]])), None)
    if first is None or not first["shape"]:
        return None
    recorded = first["shape"][0]
    each = max(1, torch.Size(first["shape"][1:]).numel())
    size = max(_FEWEST, min(recorded, _MOST_VALUES // each))
    return None if size == recorded else (recorded, size)


def _drawn(spec: Mapping[str, Any], batch: tuple[int, int] | None, draws: torch.Generator) -> Any:
    if "value" in spec:
        return spec["value"]
    if "shape" in spec:
        return _tensor(spec, batch, draws)
    for kind, make in (("list", list), ("tuple", tuple)):
        if kind in spec:
            return make(_drawn(each, batch, draws) for each in spec[kind])
    if "dict" in spec:
        return {key: _drawn(each, batch, draws) for key, each in spec["dict"].items()}
    raise _NotDrawn


def _tensor(spec: Mapping[str, Any], batch: tuple[int, int] | None, draws: torch.Generator) -> Tensor:
    shape, dtype = list(spec["shape"]), getattr(torch, spec["dtype"])
    if batch is not None and shape and shape[0] == batch[0]:
        shape[0] = batch[1]
    low, high = spec.get("low"), spec.get("high")
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=draws).bool()
    if dtype.is_floating_point:
        first, last = (0.0, 1.0) if low is None or high is None else (float(low), float(high))
        return (torch.rand(shape, generator=draws) * (last - first) + first).to(dtype)
    if dtype.is_complex:
        raise _NotDrawn
    least, most = (0, 0) if low is None or high is None else (int(low), int(high))
    return torch.randint(least, most + 1, shape, generator=draws).to(dtype)

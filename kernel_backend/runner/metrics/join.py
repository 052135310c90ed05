"""Join outputs and targets of several batches along the sample dimension, as if they had been one batch."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from kernel_backend.errors import InvalidDefinition


class NotJoined:
    """Placeholder for values of several batches that cannot be joined; raises InvalidDefinition when it is used."""

    def __init__(self, way: str, kind: str) -> None:
        self._said = f"{way} ({kind}) has no row for each sample, so the batches' cannot be joined"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InvalidDefinition(self._said)

    def __getitem__(self, key: Any) -> NoReturn:
        raise InvalidDefinition(self._said)

    def __iter__(self) -> Iterator[Any]:
        raise InvalidDefinition(self._said)


def host_copy(value: Any) -> Any:
    """Return a copy of a nested value whose tensors are in host memory."""
    return mapped(lambda each: each.detach().cpu().clone(memory_format=torch.contiguous_format), value)


def moved(value: Any, device: torch.device) -> Any:
    """Return a copy of the nested value with its tensors on the device."""
    return mapped(lambda each: each.to(device), value)


def floating(value: Any) -> list[Tensor]:
    """Return the floating-point tensors in a nested value (dicts, lists and tuples), in the order of its items."""
    found: list[Tensor] = []

    def seen(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            found.append(tensor)
        return tensor

    mapped(seen, value)
    return found


def mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return a copy of the nested value with `change` applied to each tensor."""
    if isinstance(value, Tensor):
        return change(value)
    if _is_array(value):
        return value.copy()
    if isinstance(value, Mapping) or is_dataclass(value):
        return rebuilt(value, {name: mapped(change, each) for name, each in fields_of(value).items()})
    if isinstance(value, list | tuple):
        return _sequence(value, [mapped(change, each) for each in value])
    return value


def size_of(value: Any) -> int:
    """Return the approximate size of a nested value in bytes."""
    if isinstance(value, Tensor) or _is_array(value):
        return int(value.nbytes)
    if isinstance(value, Mapping) or is_dataclass(value):
        return sum(map(size_of, fields_of(value).values()))
    if isinstance(value, list | tuple):
        return sum(map(size_of, value))
    return sys.getsizeof(value)


def row_shapes(value: Any, count: int, way: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of each tensor or array in `value` that has `count` rows, one per sample.

    `way` is the name of `value` itself, such as `output`; parts of it get names such as `output['logits']`. A list with
    `count` entries is skipped: it may hold an entry of any shape for each sample.
    """
    if _has_rows(value, count):
        yield way, tuple(value.shape)
    elif isinstance(value, Mapping) or is_dataclass(value):
        for name, each in fields_of(value).items():
            yield from row_shapes(each, count, f"{way}[{name!r}]")
    elif isinstance(value, list | tuple) and len(value) != count:
        for number, each in enumerate(value):
            yield from row_shapes(each, count, f"{way}[{number}]")


def join(counts: Sequence[int], values: Sequence[Any], way: str) -> Any:
    """Join nested values of several batches along the sample dimension, and return the joined value.

    `counts` has the number of samples in each batch; `way` names the value in error messages. Tensors with a row per
    sample are concatenated. Tensors of a single number in the `output` become their mean, weighted by samples. A value
    that is equal in all batches is returned; for any other values, a NotJoined. Raises InvalidDefinition if rows differ
    in shape.
    """
    first = values[0]
    if all(isinstance(each, Tensor) for each in values):
        return _tensors(counts, values, way)
    if all(_is_array(each) for each in values):
        joined = _tensors(counts, [torch.as_tensor(each) for each in values], way)
        return joined.numpy() if isinstance(joined, Tensor) else joined
    same_kind = all(type(each) is type(first) for each in values)
    if same_kind and (isinstance(first, Mapping) or is_dataclass(first)):
        fields = [fields_of(each) for each in values]
        if all(each.keys() == fields[0].keys() for each in fields):
            return rebuilt(
                first, {name: join(counts, [f[name] for f in fields], f"{way}[{name!r}]") for name in fields[0]}
            )
    if same_kind and isinstance(first, list | tuple):
        return _lists(counts, values, way)
    equal = same_kind and isinstance(first, str | int | float | bool | None) and all(each == first for each in values)
    return first if equal else NotJoined(way, type(first).__name__)


def rows(value: Any, count: int, which: slice) -> Any:
    """Return a nested value with only the samples in the slice `which`.

    The batch has `count` samples; items of the value that do not have `count` rows are kept whole.
    """
    if _has_rows(value, count):
        return value[which]
    if isinstance(value, Mapping) or is_dataclass(value):
        return rebuilt(value, {name: rows(each, count, which) for name, each in fields_of(value).items()})
    if isinstance(value, list | tuple):
        if len(value) == count and not all(_has_rows(each, count) for each in value):
            return _sequence(value, list(value[which]))
        return _sequence(value, [rows(each, count, which) for each in value])
    return value


def _tensors(counts: Sequence[int], values: Sequence[Tensor], way: str) -> Any:
    if all(_has_rows(each, count) for each, count in zip(values, counts, strict=True)):
        shapes = {tuple(each.shape[1:]): tuple(each.shape) for each in values}
        if len(shapes) > 1:
            one, other = list(shapes.values())[:2]
            raise InvalidDefinition(f"batches of {way} differ in shape, {one} and {other}")
        return torch.cat(list(values))
    # A number that the model returned is a mean over samples; one of the data, as mixup draws, is each batch's own.
    if way.startswith("output") and all(each.dim() == 0 for each in values):
        mean = sum(float(each) * count for each, count in zip(values, counts, strict=True)) / sum(counts)
        return torch.tensor(mean, dtype=values[0].dtype if values[0].is_floating_point() else torch.float64)
    if all(each.shape == values[0].shape and torch.equal(each, values[0]) for each in values):
        return values[0]
    return NotJoined(way, f"a tensor of shape {tuple(values[0].shape)}")


def _lists(counts: Sequence[int], values: Sequence[Any], way: str) -> Any:
    """Join lists of several batches: `counts` has the number of samples in each batch.

    Lists that have one entry per sample are concatenated; other lists, such as lists of columns, are joined entry by
    entry. `way` names the list in error messages.
    """
    first = values[0]
    pairs = list(zip(values, counts, strict=True))
    of_rows = all(_has_rows(part, count) for each, count in pairs for part in each)
    if not of_rows and all(len(each) == count for each, count in pairs):
        return _sequence(first, [part for each in values for part in each])
    if all(len(each) == len(first) for each in values):
        parts = [join(counts, column, f"{way}[{number}]") for number, column in enumerate(zip(*values, strict=True))]
        return _sequence(first, parts)
    return NotJoined(way, type(first).__name__)


def _has_rows(value: Any, count: int) -> bool:
    return (isinstance(value, Tensor) or _is_array(value)) and value.ndim > 0 and len(value) == count


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_dataclass(value: Any) -> bool:
    """Return True for an object of a dataclass."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def fields_of(value: Any) -> dict[Any, Any]:
    """Return the items of a mapping, or the fields of a dataclass object, by name."""
    if isinstance(value, Mapping):
        return dict(value)
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}


def rebuilt(value: Any, fields: dict[Any, Any]) -> Any:
    """Return a new dataclass object like `value` with the values in `fields`; for a mapping, return `fields`."""
    return type(value)(**fields) if is_dataclass(value) else fields


def _sequence(value: Any, parts: list[Any]) -> Any:
    if hasattr(value, "_fields"):
        return type(value)(*parts)
    return tuple(parts) if isinstance(value, tuple) else parts

"""Tensors to parts and back: safetensors for the tensors, JSON for what surrounds them. Every bit returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import torch as safetensors
from torch import Tensor

from kernel_backend.checkpoints.base import Manifest
from kernel_backend.checkpoints.directory import read_part
from kernel_backend.errors import CheckpointDamaged, DaylightError

MODEL, OPTIMIZER = "model", "optimizer"
_TAGS = frozenset({"$tensor", "$map", "$tuple", "$float"})


def encode(tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a part: tensors by name, wherever they lie. The format knows no shared memory: each is written."""
    seen: set[int] = set()
    return safetensors.save({name: _own(tensor, seen) for name, tensor in tensors.items()})


def decode(data: bytes) -> dict[str, Tensor]:
    """The tensors of a part, on the host; raises CheckpointDamaged for bytes that are no part."""
    try:
        return dict(safetensors.load(data))
    except Exception as error:  # the format's own error class is private to its compiled module
        raise CheckpointDamaged(f"a part is not in the safetensors format: {error}") from None


def flatten(tree: Any) -> tuple[Any, dict[str, Tensor]]:
    """A state of nested dicts, lists, tuples, numbers, strings and tensors, taken apart: JSON, and tensors by name.

    Raises DaylightError with the place of a value that is none of these.
    """
    tensors: dict[str, Tensor] = {}
    return _flatten(tree, "", tensors), tensors


def unflatten(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The state that `flatten` took apart."""
    if isinstance(tree, list):
        return [unflatten(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "$tensor" in tree:
        return tensors[tree["$tensor"]]
    if "$tuple" in tree:
        return tuple(unflatten(item, tensors) for item in tree["$tuple"])
    if "$float" in tree:
        return float(tree["$float"])
    if "$map" in tree:
        return {unflatten(key, tensors): unflatten(value, tensors) for key, value in tree["$map"]}
    return {key: unflatten(value, tensors) for key, value in tree.items()}


def load_model(manifest: Manifest) -> dict[str, Any]:
    """The `state_dict` of the model in a checkpoint that was listed, every byte of it verified.

    Raises CheckpointDamaged.
    """
    tensors = decode(read_part(manifest, MODEL, Path(manifest.folder)))
    state: dict[str, Any] = unflatten(manifest.state[MODEL], tensors)
    return state


def _own(tensor: Tensor, seen: set[int]) -> Tensor:
    host = tensor.detach().to("cpu").contiguous()
    memory = host.untyped_storage().data_ptr()
    if memory in seen:
        return host.clone()
    seen.add(memory)
    return host


def _flatten(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        tensors[path] = tree
        return {"$tensor": path}
    if isinstance(tree, dict):
        items = [(key, _flatten(value, f"{path}.{key}" if path else f"{key}", tensors)) for key, value in tree.items()]
        if all(type(key) is str and key not in _TAGS for key, _ in items):
            return dict(items)
        return {"$map": [[_flatten(key, path, tensors), value] for key, value in items]}
    if isinstance(tree, list | tuple):
        values = [_flatten(value, f"{path}.{index}", tensors) for index, value in enumerate(tree)]
        return values if isinstance(tree, list) else {"$tuple": values}
    if isinstance(tree, float) and not math.isfinite(tree):
        return {"$float": repr(float(tree))}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise DaylightError(
        f"{path or 'the state'} is a {type(tree).__name__}, which a checkpoint cannot hold: "
        "keep numbers, strings, tensors, lists, tuples and dicts of them there"
    )

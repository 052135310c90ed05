"""Convert training states to a checkpoint's files and back, bit for bit: safetensors for tensors, JSON for the rest."""

from __future__ import annotations

import ctypes
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from safetensors import torch as safetensors
from torch import Tensor
from torch.nn.parameter import is_lazy

from kernel_backend.checkpoints.base import FROZEN, Checkpoints, Manifest
from kernel_backend.errors import CheckpointDamaged, DaylightError

MODEL = "model"
_TAGS = frozenset({"$tensor", "$map", "$tuple", "$float", "$counter"})
_RESERVED = "__metadata__"  # a name reserved by the format
_ALIGNMENT = 8  # alignment in bytes of the first tensor in the file
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def pieces(tensors: Mapping[str, Tensor]) -> list[bytes | memoryview]:
    """Return tensors in the safetensors format: the header, then the tensors' own memory without copies if possible.

    The tensors must not change until the pieces are written. Tensors that share memory are written separately. Raises
    DaylightError for a tensor that the format cannot hold.
    """
    hosts = {name: _host(name, tensor) for name, tensor in tensors.items()}
    in_order = sorted(hosts.items(), key=lambda item: (-item[1].itemsize, item[0]))  # sorted so that each is aligned
    header, end = {}, 0
    for name, tensor in in_order:
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    words = json.dumps(header, separators=(",", ":")).encode()
    words += b" " * (-len(words) % _ALIGNMENT)
    return [len(words).to_bytes(8, "little") + words, *(_memory(tensor) for _, tensor in in_order)]


def decode(data: bytes) -> dict[str, Tensor]:
    """Return the tensors in the bytes of a part, on the CPU; raise CheckpointDamaged for bytes in another format."""
    try:
        return dict(safetensors.load(data))
    except Exception as error:  # the library does not export its error class
        raise CheckpointDamaged(f"a part is not in the safetensors format: {error}") from None


def flatten(tree: Any) -> tuple[Any, dict[str, Tensor]]:
    """Split a training state into JSON, and its tensors by name.

    The state consists of nested dicts, lists, tuples, numbers, strings and tensors. A tensor object that occurs several
    times has one name. Raises DaylightError, with the path, for any other value.
    """
    tensors: dict[str, Tensor] = {}
    return _flatten(tree, "", tensors, {}), tensors


def unflatten(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Rebuild a state from the JSON and the tensors that `flatten` returned."""
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
    if "$counter" in tree:
        return Counter(unflatten(tree["$counter"], tensors))
    if "$map" in tree:
        return {unflatten(key, tensors): unflatten(value, tensors) for key, value in tree["$map"]}
    return {key: unflatten(value, tensors) for key, value in tree.items()}


def load_model(place: Checkpoints, manifest: Manifest) -> dict[str, Any]:
    """Return the verified `state_dict` of the model in a checkpoint of the storage `place`; raise CheckpointDamaged."""
    tensors = tensors_of(manifest, MODEL, partial(place.read, manifest))
    state: dict[str, Any] = unflatten(manifest.state[MODEL], tensors)
    return state


def tensors_of(manifest: Manifest, name: str, read: Callable[[str], bytes]) -> dict[str, Tensor]:
    """Return the tensors of a part, together with its frozen part and its shards; empty if the part is missing.

    `read` returns the bytes of a part by name.
    """
    found = {
        key: tensor
        for each in (name, f"{name}{FROZEN}")
        if manifest.part(each) is not None
        for key, tensor in decode(read(each)).items()
    }
    rows: dict[str, list[Tensor]] = {}
    for each in manifest.shards(name):
        for key, tensor in decode(read(each)).items():
            rows.setdefault(key, []).append(tensor)
    return found | {key: torch.cat(tensors) for key, tensors in rows.items()}


def can_hold(tensor: Tensor) -> bool:
    """Return True if the safetensors format can represent this tensor: not a sparse, quantized or valueless one."""
    if is_lazy(tensor):  # first, since any other look at it raises
        return False
    return tensor.layout is torch.strided and tensor.dtype in DTYPES and not tensor.is_meta


def must_hold(name: str, tensor: Tensor) -> None:
    """Raise DaylightError if the safetensors format cannot represent this tensor."""
    if not can_hold(tensor):
        if is_lazy(tensor) or tensor.is_meta:
            raise DaylightError(f"{name} is a tensor without values: give it some, as a first batch does, or remove it")
        kind = tensor.dtype if tensor.layout is torch.strided else tensor.layout
        raise DaylightError(f"{name} is a tensor of {kind}, which a checkpoint cannot hold: keep it as another one")


def _host(name: str, tensor: Tensor) -> Tensor:
    must_hold(name, tensor)
    return tensor.detach().to("cpu").resolve_conj().resolve_neg().contiguous()


def _memory(tensor: Tensor) -> bytes | memoryview:
    """Return a view of a contiguous tensor's bytes for any dtype; the view keeps the tensor alive."""
    if tensor.nbytes == 0:
        return b""
    memory: Any = (ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())
    memory.tensor = tensor  # the view keeps the memory alive
    return memoryview(memory).cast("B")


def _flatten(tree: Any, path: str, tensors: dict[str, Tensor], names: dict[int, str]) -> Any:
    """Return a state as JSON; add its tensors to `tensors`, and their names by `id()` to `names`.

    `path` is the place of `tree` in the whole state, such as `optimizer.state.0`; tensors are named by it.
    """
    if isinstance(tree, Tensor):
        if id(tree) not in names:
            names[id(tree)] = name = _free(path, tensors)
            tensors[name] = tree
        return {"$tensor": names[id(tree)]}
    if isinstance(tree, Counter):  # MultiStepLR keeps its milestones in a Counter
        return {"$counter": _flatten(dict(tree), path, tensors, names)}
    if isinstance(tree, dict):
        items = [
            (key, _flatten(value, f"{path}.{key}" if path else f"{key}", tensors, names)) for key, value in tree.items()
        ]
        if all(type(key) is str and key not in _TAGS for key, _ in items):
            return dict(items)
        return {"$map": [[_flatten(key, path, tensors, names), value] for key, value in items]}
    if isinstance(tree, list | tuple):
        values = [_flatten(value, f"{path}.{index}", tensors, names) for index, value in enumerate(tree)]
        return values if isinstance(tree, list) else {"$tuple": values}
    if isinstance(tree, float) and not math.isfinite(tree):
        return {"$float": repr(float(tree))}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise DaylightError(
        f"{f'the value at {path}' if path else 'the state'} is an object of class {type(tree).__name__}, which a "
        f"checkpoint cannot hold: {_instead(tree)}"
    )


def _instead(value: object) -> str:
    if type(value).__name__ == "ndarray":
        return "keep torch.from_numpy of it there"
    return "keep numbers, strings, tensors, lists, tuples and dicts of them there"


def _free(path: str, tensors: Mapping[str, Tensor]) -> str:
    """Return a name for the tensor at `path` that no tensor in `tensors` has: the path, with primes if it is taken.

    Two tensors have the path `a.b` in `{"a": {"b": one}, "a.b": two}`.
    """
    while path in tensors or path == _RESERVED:
        path += "'"
    return path

"""Turn a batch's outputs into columns with an entry for each row, and columns into the file of a shard."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.predictions import ABOUT, OUTPUT, ROW, BadRow, ShardAbout
from kernel_backend.runner.determinism.digests import tensor_digest

Columns = dict[str, Tensor | list[str]]


def columns_of(output: Any, rows: int) -> Columns:
    """Return the outputs of a batch as columns of `rows` entries: numbers as a tensor, texts as a list.

    One array is the column `output`; a dict, DataFrame or dataclass of a library such as transformers has a column for
    each of its arrays. Raises InvalidDefinition for outputs that do not belong to rows.
    """
    if hasattr(output, "columns") and hasattr(output, "iloc"):
        output = {str(name): list(output[name]) for name in output.columns}
    if isinstance(output, Mapping):
        of_library = type(output).__module__.partition(".")[0] not in ("builtins", "collections")
        found = {str(name): _column(each) for name, each in output.items()}
        if of_library:  # such as the loss and the states of all layers
            found = {name: each for name, each in found.items() if each is not None and len(each) == rows}
    elif isinstance(output, tuple | list) and output and isinstance(output[0], Tensor):
        found = {f"{OUTPUT}_{place}": _column(each) for place, each in enumerate(output)}
    else:
        found = {OUTPUT: _column(output)}
    for name, each in found.items():
        if each is None or len(each) != rows:
            what = type(output).__name__ if each is None else f"{len(each)} for a batch of {rows} rows"
            raise InvalidDefinition(
                f"the prediction's {name} is {what}: return a tensor, array or list with an entry for each row, or a "
                "dict of them; def post(output) makes one of what the model returns"
            )
    if not found or ROW in found:
        raise InvalidDefinition(f"a prediction has columns other than {ROW}: it has {', '.join(found) or 'none'}")
    return {name: each for name, each in found.items() if each is not None}


def joined(parts: Sequence[Columns]) -> Columns:
    """Return columns one below the other; raise InvalidDefinition if one differs in kind or shape between batches."""
    found: Columns = {}
    for name in parts[0] if parts else ():
        pieces = [part.get(name) for part in parts]
        if all(isinstance(each, list) for each in pieces):
            found[name] = [text for each in pieces for text in each or ()]
        elif len({(each.dtype, each.shape[1:]) if isinstance(each, Tensor) else None for each in pieces}) == 1:
            found[name] = torch.cat([each for each in pieces if isinstance(each, Tensor)])
        else:
            raise InvalidDefinition(f"the prediction's {name} has another type or shape in some batches of these rows")
    return found


def write_shard(path: Path, columns: Columns, rows: Sequence[int], about: ShardAbout) -> None:
    """Write a shard: its columns, the number of each row, and what is known besides.

    The bytes depend on nothing else: a shard that is predicted again is the same file.
    """
    tensors = {ROW: torch.tensor(rows, dtype=torch.int64)}
    for name, column in columns.items():
        data = json.dumps(column).encode() if isinstance(column, list) else b""
        tensors[name] = (
            torch.frombuffer(bytearray(data), dtype=torch.uint8) if isinstance(column, list) else column.contiguous()
        )
    texts = tuple(name for name, column in columns.items() if isinstance(column, list))
    known = {"columns": tuple(columns), "texts": texts, "digest": _digest(tensors)}
    save_file(tensors, path, metadata={ABOUT: about.model_copy(update=known).model_dump_json()})


def intact_shard(path: Path) -> ShardAbout | None:
    """Return the description of a shard's file; None if there is none, or if its bytes have changed."""
    try:
        with safe_open(path, "pt") as file:
            about = ShardAbout.model_validate_json(file.metadata()[ABOUT])
            found = _digest({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 - no dict
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return None
    return about if about.digest == found else None


def _digest(tensors: Mapping[str, Tensor]) -> str:
    each = (f"{name}:{tensor_digest(tensor)}" for name, tensor in sorted(tensors.items()))
    return xxhash.xxh3_128_hexdigest("\n".join(each).encode())


def bad_row(row: int, error: Exception) -> BadRow:
    """Return the entry of a row that raised an error."""
    return BadRow(row=row, error=f"{type(error).__name__}: {error}"[:500])


def _column(value: Any) -> Tensor | list[str] | None:
    if isinstance(value, Tensor):
        return value.detach().cpu() if value.ndim else None
    if isinstance(value, list | tuple) and value and all(isinstance(each, str) for each in value):
        return list(value)
    if not isinstance(value, list | tuple) and not hasattr(value, "__array__"):
        return None
    try:
        import numpy as np

        found = torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError):
        return None
    return found if found.ndim else None

"""Write images as PNG and tables as CSV, from the usual objects of notebooks, without further packages."""

from __future__ import annotations

import csv
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_backend.errors import InvalidRequest

_COLORS = {1: 0, 3: 2, 4: 6}  # channels -> colour type of the format
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def write_image(image: Any, path: Path) -> None:
    """Write a figure, PIL image, array or tensor as PNG; raise InvalidRequest for any other object.

    Arrays have shape (height, width), (height, width, channels) or (channels, height, width), with 1, 3 or 4 channels;
    floats are in [0, 1], integers in [0, 255].
    """
    if callable(getattr(image, "savefig", None)):  # a matplotlib figure
        image.savefig(path, format="png")
    elif callable(getattr(image, "save", None)):  # a PIL image
        image.save(path, format="PNG")
    else:
        path.write_bytes(_png(_pixels(image)))


def write_table(rows: Any, path: Path) -> None:
    """Write a DataFrame, list of dicts, or dict of columns as CSV; raise InvalidRequest for any other object."""
    if callable(getattr(rows, "to_csv", None)):
        rows.to_csv(path, index=False)
        return
    if isinstance(rows, Mapping) and all(isinstance(each, Sequence) for each in rows.values()):
        names = list(rows)
        found = [dict(zip(names, values, strict=True)) for values in zip(*rows.values(), strict=True)]
    elif isinstance(rows, Sequence) and rows and all(isinstance(each, Mapping) for each in rows):
        names, found = list(dict.fromkeys(name for row in rows for name in row)), [dict(row) for row in rows]
    else:
        raise InvalidRequest(
            f"a table of {type(rows).__name__}: give a list of dicts, a dict of columns, or a DataFrame"
        )
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(found)


def _pixels(image: Any) -> Any:
    """Return an image as a uint8 array of shape (height, width, channels)."""
    import numpy as np

    array = np.asarray(image.detach().cpu() if hasattr(image, "detach") else image)
    if array.ndim == 3 and array.shape[0] in _COLORS and array.shape[2] not in _COLORS:
        array = array.transpose(1, 2, 0)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in _COLORS or array.dtype.kind not in "fiub":
        raise InvalidRequest(
            f"an image of shape {tuple(array.shape)} and type {array.dtype}: give (height, width) or "
            "(height, width, channels) of numbers, a PIL image or a figure"
        )
    if array.dtype.kind == "f":
        array = np.nan_to_num(array).clip(0, 1) * 255 + 0.5
    elif array.dtype.kind == "b":
        array = array * np.uint8(255)
    return np.ascontiguousarray(array.clip(0, 255).astype(np.uint8))


def _png(pixels: Any) -> bytes:
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, _COLORS[channels], 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(lines)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

"""Parse and format numbers of bytes."""

from __future__ import annotations

import re

from kernel_backend.errors import InvalidRequest

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?B)?", re.IGNORECASE)
LARGEST = 2.0**63  # bytes
_UNITS = ("B", "kB", "MB", "GB", "TB")
_BYTES = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4}


def parse_size(text: str) -> int:
    """Parse `200MB`, `1.5GB` or `500000` into bytes, in powers of 1000; raises InvalidRequest for any other text."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise InvalidRequest(f"{text!r} is no size: write 200MB, 1GB or 2TB")
    size = float(found[1]) * _BYTES[(found[2] or "").lower()]
    if size >= LARGEST:
        raise InvalidRequest(f"{text[:50]!r} is more than any disk holds: write 200MB, 1GB or 2TB")
    return int(size)


def size_word(count: int) -> str:
    """Format a number of bytes exactly, so that `parse_size` reads it back: `10MB`."""
    unit = next((unit for unit in ("TB", "GB", "MB", "kB") if count and not count % parse_size(f"1{unit}")), "")
    return f"{count // parse_size(f'1{unit}')}{unit}" if unit else str(count)


def size(count: int) -> str:
    """Format a number of bytes, rounded, in powers of 1000: `512 B`, `1.5 MB`."""
    amount = float(count)
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError

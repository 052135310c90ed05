"""Parse Kubernetes' quantities (such as `500m`) and time stamps: pure functions."""

from __future__ import annotations

import re
from datetime import datetime

_FACTORS = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_FACTORS |= {f"{letter}i": 1024.0 ** (place + 1) for place, letter in enumerate("KMGTPE")}


def quantity(text: str) -> float:
    """Return a quantity such as `64Gi` as a number; 0 if it cannot be parsed.

    Examples
    --------
    >>> quantity("1500m"), quantity("64Gi"), quantity("8"), quantity("1e3")
    (1.5, 68719476736.0, 8.0, 1000.0)
    """
    found = re.fullmatch(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)", text.strip())
    if found is None or found[2] not in _FACTORS:
        return 0.0
    return float(found[1]) * _FACTORS[found[2]]


def seconds(stamp: str | None) -> float | None:
    """Return a time stamp in seconds since the epoch; None if it is missing or invalid.

    Examples
    --------
    >>> seconds("1970-01-01T00:01:00Z")
    60.0
    """
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp else None
    except ValueError:
        return None

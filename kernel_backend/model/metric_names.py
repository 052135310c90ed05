"""Compare the names of metrics as users write them: in an option, in a call, in printed text."""

from __future__ import annotations

import unicodedata
from functools import lru_cache


@lru_cache(maxsize=1024)
def cleaned(name: str) -> str:
    """Return a name as it is compared: in lower case, with `_` for spaces and most signs.

    Examples
    --------
    >>> cleaned("Val Acc"), cleaned("mAP@0.5:0.95")
    ('val_acc', 'map@0.5_0.95')
    """
    kept = (each if each.isalnum() or each in "@/.%-" or _is_mark(each) else " " for each in name.lower())
    return "_".join("".join(kept).split()).strip("_-./")


def _is_mark(character: str) -> bool:
    """Return True for a part of a letter, such as a vowel sign of Hindi."""
    return not character.isascii() and unicodedata.category(character).startswith("M")

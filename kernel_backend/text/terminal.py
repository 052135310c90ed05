"""Print text to a terminal with control sequences escaped, as names and output may come from other users.

Names, notes, messages and metrics are always passed through `harmless`. A log is written unchanged to a pipe; a
terminal gets its colours and progress bars, but no other control sequences.
"""

from __future__ import annotations

import sys
from typing import TextIO

from kernel_backend.printable import harmless, harmless_log


def tell(text: object, file: TextIO | None = None, log: bool = False) -> None:
    """Print a text with control characters escaped; with `log`, except those of colours and progress bars."""
    print((harmless_log if log else harmless)(str(text)), file=file, flush=True)


def hand_over(text: str, log: bool = False) -> None:
    """Print the content of a file (source, a lock, a log): to a pipe unchanged, on a terminal escaped."""
    if sys.stdout.isatty():
        text = harmless_log(text) if log else harmless(text)
    print(text, end="", flush=log)

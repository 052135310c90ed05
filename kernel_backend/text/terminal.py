"""Print text to a terminal with control sequences in names and output of other users escaped.

Names, notes, messages and metrics go through `harmless` wherever they are printed. A log is a file's own text: a pipe
gets it unchanged. A terminal gets its colours and progress bars, and no other control sequences.
"""

from __future__ import annotations

import sys
from typing import TextIO

from kernel_backend.printable import harmless, harmless_log


def tell(text: object, file: TextIO | None = None, log: bool = False) -> None:
    """Print text with control characters escaped; a log keeps its colours and progress bars."""
    print((harmless_log if log else harmless)(str(text)), file=file, flush=True)


def hand_over(text: str, log: bool = False) -> None:
    """Print the text of a file (source, a lock, a log) unchanged, unless it goes to a terminal."""
    if sys.stdout.isatty():
        text = harmless_log(text) if log else harmless(text)
    print(text, end="", flush=log)

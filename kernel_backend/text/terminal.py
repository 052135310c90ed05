"""How text reaches a terminal: what somebody else has named or printed is shown there, and steers nothing.

Names, notes, messages and metrics go through `harmless` wherever they are printed. A log is a file's own text: a pipe
gets it as it is, a terminal gets its colours and progress bars and nothing else that steers.
"""

from __future__ import annotations

import sys
from typing import TextIO

from kernel_backend.printable import harmless, harmless_log


def tell(text: object, file: TextIO | None = None, log: bool = False) -> None:
    """Print an answer in words."""
    print((harmless_log if log else harmless)(str(text)), file=file, flush=True)


def hand_over(text: str, log: bool = False) -> None:
    """Print what belongs into a file (source, a lock, a log): as it is, unless it goes to a terminal."""
    if sys.stdout.isatty():
        text = harmless_log(text) if log else harmless(text)
    print(text, end="", flush=log)

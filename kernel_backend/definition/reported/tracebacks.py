"""Tell the lines of tracebacks from other lines that a program prints: their numbers are no metrics."""

from __future__ import annotations

import re

BEGIN = "Traceback (most recent call last):"
OF_RANK = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)  # torch's mark of a process group's members


class Tracebacks:
    """Tracebacks in the text that a program prints bit by bit, in whole lines."""

    def __init__(self) -> None:
        """Begin outside of any traceback."""
        self._inside = False

    def without(self, text: str) -> str:
        """Return the text without the lines of tracebacks; one may go on in the next text.

        Examples
        --------
        >>> Tracebacks().without("loss 0.5\\nTraceback (most recent call last):\\n  File 'a', line 3\\nE\\nacc 0.4\\n")
        'loss 0.5\\nacc 0.4\\n'
        """
        if not self._inside and BEGIN not in text:
            return text
        return "".join(line for line in text.splitlines(keepends=True) if not self._has(line))

    def _has(self, line: str) -> bool:
        """Return True for a line of a traceback, the last of which names the error and is not indented."""
        line = OF_RANK.sub("", line)
        if line.startswith(BEGIN):
            self._inside = True
            return True
        inside = self._inside
        self._inside = inside and (line[:1].isspace() or not line)
        return inside

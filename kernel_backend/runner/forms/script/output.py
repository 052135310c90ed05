"""Capture what a program prints, so that the log of a restarted attempt equals that of an uninterrupted run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

MOST = 2**20  # characters at the end of the log that a checkpoint stores


class Output:
    """Substitute for a program's `sys.stdout` and `sys.stderr`; after a restart, silent up to the checkpoint."""

    def __init__(self, listener: Callable[[str], None]) -> None:
        """Replace `sys.stdout` and `sys.stderr`.

        `listener` receives the printed text except warnings, as numbers in warnings are not results.
        """
        self.muted = self._warns = False
        self._listener = listener
        self._text: list[str] = []
        self._own = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (_Stream(each, self) for each in self._own)
        self._show_warning = warnings.showwarning
        warnings.showwarning = self._warn

    @property
    def text(self) -> str:
        """Return what the program has printed so far, at most the last `MOST` characters."""
        self._text = ["".join(self._text)[-MOST:]]
        return self._text[0]

    def resume(self, text: str) -> None:
        """Print `text`, the program's output before the checkpoint; from now on, also print what the program prints."""
        self._text, self.muted = [text], False
        self._own[0].write(text)

    def heard(self, text: str) -> None:
        """Store text that the program has printed, and pass it on to the listener."""
        self._text.append(text)
        if len(self._text) > MOST // 64:
            self.text  # noqa: B018
        if not self._warns:
            self._listener(text)

    def close(self) -> None:
        """Restore the original streams."""
        sys.stdout, sys.stderr = self._own
        if warnings.showwarning == self._warn:  # the program may have set another function
            warnings.showwarning = self._show_warning

    def _warn(self, *args: Any, **options: Any) -> None:
        self._warns = True
        try:
            self._show_warning(*args, **options)
        finally:
            self._warns = False


class _Stream:
    """Text stream that passes text on, except while output is muted."""

    def __init__(self, stream: Any, output: Output) -> None:
        self._stream, self._output = stream, output

    def write(self, text: str) -> int:
        if self._output.muted:
            return len(text)
        self._output.heard(text)
        return int(self._stream.write(text))

    def writelines(self, lines: Any) -> None:
        for each in lines:
            self.write(each)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

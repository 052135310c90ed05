"""Hold what a program prints, so that the log of a restarted attempt reads as that of one undisturbed run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

MOST = 2**20  # characters of the log that a checkpoint holds: its end


class Output:
    """The program's `sys.stdout` and `sys.stderr`, which are silent while a resumed program runs again."""

    def __init__(self, listener: Callable[[str], None]) -> None:
        """Stand in for both streams."""
        self.muted = False
        self._listener = listener
        self._text: list[str] = []
        self._own = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (_Stream(each, self) for each in self._own)

    @property
    def text(self) -> str:
        """Return what the program has printed so far, at most the end of it."""
        self._text = ["".join(self._text)[-MOST:]]
        return self._text[0]

    def resume(self, text: str) -> None:
        """Print what was printed before the checkpoint, and be silent no more."""
        self._text, self.muted = [text], False
        self._own[0].write(text)

    def heard(self, text: str) -> None:
        """Keep a text that the program has printed, and tell the listener."""
        self._text.append(text)
        if len(self._text) > MOST // 64:
            self.text  # noqa: B018
        self._listener(text)

    def close(self) -> None:
        """Put the streams back."""
        sys.stdout, sys.stderr = self._own


class _Stream:
    """A text stream that passes on what is written unless muted."""

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

"""Capture what a program prints, so that the log of a restarted attempt equals that of an uninterrupted run."""

from __future__ import annotations

import sys
import warnings
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Any

from kernel_backend.runner.forked_children import in_children

MOST = 2**20  # characters at the end of the log that a checkpoint stores


class Output:
    """Substitute for a program's `sys.stdout` and `sys.stderr`; after a restart, silent up to the checkpoint."""

    def __init__(self, listener: Callable[[str], object]) -> None:
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
        in_children(self._unmute)

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
        """Restore the original streams; what the program's threads still print is passed on, and no longer heard."""
        self._listener = len
        sys.stdout, sys.stderr = self._own
        if warnings.showwarning == self._warn:  # the program may have set another function
            warnings.showwarning = self._show_warning

    def _unmute(self) -> None:
        """Let a process that the program has forked print on its own, even if this one is silent after a restart."""
        self.muted, self._listener = False, len

    def _warn(self, *args: Any, **options: Any) -> None:
        self._warns = True
        try:
            self._show_warning(*args, **options)
        finally:
            self._warns = False


class _Stream:
    """Text stream that passes text on, except while output is muted, and leaves the rank's own stream open."""

    def __init__(self, stream: Any, output: Output) -> None:
        self._stream, self._output = stream, output
        self.buffer = _Buffer(stream.buffer, output) if hasattr(stream, "buffer") else None
        self.closed = False

    def write(self, text: str) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if self._output.muted:
            return len(text)
        written = int(self._stream.write(text))
        self._output.heard(text)
        return written

    def writelines(self, lines: Any) -> None:
        for each in lines:
            self.write(each)

    def detach(self) -> Any:
        self.close()
        return self.buffer

    def close(self) -> None:
        self._stream.flush()
        self.closed = True

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Buffer:
    """Binary stream beneath a `_Stream`, for programs that write bytes or wrap it in a text stream of their own."""

    closed = False

    def __init__(self, buffer: Any, output: Output) -> None:
        self._buffer, self._output = buffer, output
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def write(self, data: Any) -> int:
        if self._output.muted:
            return len(data)
        written = int(self._buffer.write(data))
        self._output.heard(self._decoder.decode(bytes(data)))
        return written

    def close(self) -> None:
        self._buffer.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._buffer, name)

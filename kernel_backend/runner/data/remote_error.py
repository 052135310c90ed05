"""Send an exception to another process, which raises it with its class, text and source lines."""

from __future__ import annotations

import pickle
import sys
import traceback
from types import FrameType, TracebackType
from typing import NamedTuple


class RemoteError(NamedTuple):
    """Exception in picklable form, with its traceback's lines, which pickle does not preserve."""

    pickled: bytes | None
    name: str
    text: str
    lines: list[tuple[str, int, str]]  # file, line, function
    cause: RemoteError | None
    context: RemoteError | None
    suppressed: bool

    def restored(self) -> BaseException:
        """Return the exception with a traceback that shows the lines where it was raised in the other process."""
        error = self._unpickled()
        error.__cause__ = self.cause.restored() if self.cause else None
        error.__context__ = self.context.restored() if self.context else None
        error.__suppress_context__ = self.suppressed
        return error.with_traceback(_traceback(self.lines))

    def _unpickled(self) -> BaseException:
        try:
            error = pickle.loads(self.pickled) if self.pickled else None
        except Exception:  # its constructor takes other arguments than it passes to Exception
            error = None
        if isinstance(error, BaseException):
            return error
        # A class of the same name, as users and `failure` identify errors by name.
        substitute: BaseException = type(self.name, (RuntimeError,), {})(self.text)
        return substitute


def carry(error: BaseException) -> RemoteError:
    """Return `error`, with its causes, in a form that can be pickled."""
    return RemoteError(
        pickled=_pickled(error),
        name=type(error).__name__,
        text=_text(error),
        lines=[(line.filename, line.lineno or 0, line.name) for line in traceback.extract_tb(error.__traceback__)],
        cause=carry(error.__cause__) if error.__cause__ else None,
        context=carry(error.__context__) if error.__context__ and not error.__cause__ else None,
        suppressed=error.__suppress_context__,
    )


def _pickled(error: BaseException) -> bytes | None:
    try:
        return pickle.dumps(error)
    except Exception:  # it refers to an object that cannot be pickled
        return None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # raised by the user's own exception class
        return f"its text is not available: __str__ raised {type(broken).__name__}"


def _traceback(lines: list[tuple[str, int, str]]) -> TracebackType | None:
    made: TracebackType | None = None
    for file, line, function in reversed(lines):
        made = TracebackType(made, _frame(file, function), -1, line)
    return made


def _frame(file: str, function: str) -> FrameType:
    """Return a stack frame whose code object has this file and function, for a traceback that is built by hand."""
    found: dict[str, FrameType] = {}
    code = compile("found['frame'] = getframe()", file, "exec").replace(co_name=function)
    exec(code, {"found": found, "getframe": sys._getframe})
    return found["frame"]

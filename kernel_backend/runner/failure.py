"""Write a rank's failure record: the error, the user's lines by notebook cell, and whether a lost rank caused it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from kernel_backend.durable import replacing
from kernel_backend.model.frames import OURS, Call, Sources, users_frame
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.trial import USAGE_ERROR, Failure, Frame
from kernel_backend.runner.process_end import flush_output
from kernel_backend.runner.program_end import end_of, last_words, usage_error

# Classes are compared by name, as torch or Horovod may not be importable here.
_CONSEQUENCES = {"HorovodInternalError", "DistBackendError", "DistNetworkError", "DistStoreError"}
# Classes that also have other causes: recognised by their text. The last is a crash in native code.
_BY_TEXT = {"RuntimeError", "UnavailableError", "SIGABRT"}
_LOST_PEER = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "timed out waiting",
    "gloo connectfullmesh failed",
    "socket closed",
)
LONGEST_MESSAGE = 20_000  # characters: an error may quote a whole dataset
LONGEST_TRACEBACK = 100_000
_MOST_FRAMES = 30  # the innermost frames, in case of infinite recursion


def describe(
    error: BaseException,
    rank: int,
    step: int | None,
    code: Path,
    cwd: Path,
    snapshot: Snapshot | None,
    log: Path | None = None,
) -> Failure:
    """Return the failure record of `error`, which was raised during step `step` (None: before the training).

    Files in the folders `code`, which holds the definition, and `cwd` are the user's own: the record lists their stack
    frames. If a program ended by `sys.exit`, the record has the last lines of the rank's `log`; if it rejected its
    command line, it has the reason from there, and no traceback.
    """
    printed = _printed(log) if isinstance(error, SystemExit) and log is not None else None
    refusal = usage_error(error.code, printed) if isinstance(error, SystemExit) and printed is not None else None
    message = _message(error) + (last_words(printed) if printed is not None else "")
    return Failure(
        rank=rank,
        type=USAGE_ERROR if refusal else type(error).__name__,
        message=_plain(refusal or message)[:LONGEST_MESSAGE],
        step=step,
        frames=tuple(_frames(error, Sources(code, cwd, snapshot)))[-_MOST_FRAMES:],
        traceback="" if refusal else _plain(_traceback(error))[-LONGEST_TRACEBACK:],
        consequence=is_consequence(error),
        invalid=any(kind.__name__ == "InvalidHyperparameters" for kind in type(error).__mro__),
        at=time.time(),
    )


def is_consequence(error: BaseException) -> bool:
    """Return True if `error` occurred only because another rank was lost, and so is not the cause of the failure."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return any(is_lost_peer(kind, _message(error)) for kind in kinds)


def is_lost_peer(kind: str, message: str) -> bool:
    """Return True if an error only follows from the loss of another rank.

    `kind` is the name of the error's class; `message` is its text or, after a crash, the process's output.
    """
    text = message.lower()
    from_gloo = kind in _BY_TEXT and ("gloo" in text or "peer" in text)
    return kind in _CONSEQUENCES or (from_gloo and any(sign in text for sign in _LOST_PEER))


def write(failure: Failure, folder: Path) -> None:
    """Write the failure record to `failure-<rank>.json` in `folder`, atomically."""
    with replacing(folder / f"failure-{failure.rank}.json", durable=False) as file:
        file.write(failure.model_dump_json(indent=2).encode())


def _printed(log: Path) -> str:
    flush_output()
    return end_of(log)


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the program ended itself by sys.exit({'' if error.code is None else repr(error.code)})"
    if isinstance(error, SyntaxError):
        return error.msg or "invalid syntax"
    try:
        return "; ".join([str(error), *getattr(error, "__notes__", ())])
    except Exception as broken:  # raised by the user's own exception class
        return f"its text is not available: __str__ raised {type(broken).__name__}"


def _plain(text: str) -> str:
    """Return `text` with the characters escaped that UTF-8 cannot encode, such as half of a surrogate pair."""
    return text.encode(errors="backslashreplace").decode()


def _traceback(error: BaseException) -> str:
    """Return the traceback as Python formats it, without the Daylight frames that precede the user's code."""
    told = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = told
    while link is not None:
        theirs = [index for index, entry in enumerate(link.stack) if not _is_way(entry.filename)]
        del link.stack[: theirs[0] if theirs else 0]  # Daylight's own errors keep all of their frames
        link = link.__cause__ or link.__context__
    return "".join(told.format())


def _is_way(file: str) -> bool:
    """Return True for a source file of Daylight or importlib, whose frames `_traceback` leaves out.

    These are the frames on the way to the user's code.
    """
    return Path(file).is_relative_to(OURS) or file.startswith("<frozen importlib")


def _frames(error: BaseException, sources: Sources) -> Iterator[Frame]:
    calls = [
        Call(entry.filename, entry.lineno or 0, entry.name, _plain((entry.line or "").strip()))
        for entry in traceback.extract_tb(error.__traceback__)
    ]
    if isinstance(error, SyntaxError) and error.filename:
        calls.append(Call(error.filename, error.lineno or 0, "<module>", _plain((error.text or "").strip())))
    for call in calls:
        frame = users_frame(call, sources)
        if frame is not None:
            yield frame

"""Run a search method, a class in the user's cell, in a process: `-m kernel_backend.runner.search_process CODE CWD`.

Requests arrive on standard input and answers go to standard output, one JSON line each. Output that the class prints
goes to standard error. The first request holds the search's settings and space; it is answered once the class is
constructed. At the end of the input the process exits, even while the class runs.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.frames import Call, Sources, users_frame
from kernel_backend.model.search.records import Settings
from kernel_backend.model.search.space import Space
from kernel_backend.model.versions import changes_nothing, read
from kernel_backend.runner import failure
from kernel_backend.runner.definition.load import load, read_snapshot


class Pipes:
    """Pipes by which the process of a search class receives requests from the service and sends answers.

    A thread reads the requests. So the process can report which line the class is executing, even while the class is
    busy.
    """

    def __init__(self, sources: Sources) -> None:
        # The class may print and read, but must not touch these pipes.
        self._questions, self._answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "wb")
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        self._sources, self._main, self._mine = sources, threading.get_ident(), os.getpid()
        self._waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._writing = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def next(self) -> dict[str, Any]:
        """Wait for the next request, and return its decoded JSON."""
        return self._waiting.get()

    def answer(self, **answer: Any) -> None:
        """Send an answer, given as keywords, as a line of JSON.

        Raises TypeError for values outside JSON, and ValueError for text that is not Unicode.
        """
        line = json.dumps(answer, default=_plain, ensure_ascii=False).encode() + b"\n"
        if os.getpid() != self._mine:
            os._exit(0)  # the class has forked, and this is the child
        with self._writing:
            self._answers.write(line)
            self._answers.flush()

    def _listen(self) -> None:
        for line in self._questions:
            question = json.loads(line)
            if question.get("call") == "where":
                self.answer(where=self._where())
            else:
                self._waiting.put(question)
        os._exit(0)

    def _where(self) -> str | None:
        """Return text on the line of the user's search class that the main thread executes; None if it is elsewhere."""
        frame: FrameType | None = sys._current_frames()[self._main]
        while frame is not None:
            found = users_frame(Call(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name), self._sources)
            if found is not None:
                return found.where
            frame = frame.f_back
        return None


def main(code: Path, cwd: Path) -> int:
    """Create the user's search class and answer requests until the class fails; report the failure and return 1.

    At the end of the input the process exits with code 0 instead, and the function does not return.
    """
    pipes = Pipes(Sources(code, cwd, read_snapshot(code)))
    try:
        _answer(pipes, code, cwd)
    except BaseException as error:
        described = failure.describe(error, 0, None, code, cwd, read_snapshot(code))
        print(described.traceback, file=sys.stderr, end="", flush=True)
        pipes.answer(failure=described.to_json())
    return 1


def _answer(pipes: Pipes, code: Path, cwd: Path) -> None:
    first = pipes.next()
    settings = read(Settings, first["settings"], changes_nothing(()))
    space = read(Space, first["space"], changes_nothing(()))
    module = load(code, cwd).module
    kind = getattr(module, settings.source or "", None)
    if kind is None:
        raise InvalidDefinition(f"the cell has no class {settings.source}")
    search = kind(space, settings)
    pipes.answer(answer=None)
    while True:
        question = pipes.next()
        call, arguments = question["call"], question["arguments"]
        found = getattr(search, call)(*arguments) if call != "interval" else getattr(search, "interval", None)
        try:
            pipes.answer(answer=found)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{call} answered {found!r}, which is no plain value: {error}") from None


def _plain(value: Any) -> Any:
    """Convert a scalar of numpy or torch to a Python number, for JSON; raise TypeError for other values."""
    if callable(item := getattr(value, "item", None)):
        return item()
    raise TypeError(f"{type(value).__name__} is no number, text, list or dictionary")


if __name__ == "__main__":
    # Threads that the class started must not keep the process alive.
    status = main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stderr.flush()
    os._exit(status)

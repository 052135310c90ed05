"""The search class of a cell in a process of its own: `python -m kernel_backend.runner.search_process CODE CWD`.

It is asked over its standard input and answers on its standard output, a line of JSON each; what the class prints goes
to standard error. The first line has the search's settings and space, and is answered when the class is made. The end
of the input ends the process, whatever the class does just then.
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
    """Questions come in by a thread of their own, so that one can ask where the class is while it thinks."""

    def __init__(self, sources: Sources) -> None:
        # The class may print, and read: neither is for these pipes.
        self._questions, self._answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "wb")
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        self._sources, self._main, self._mine = sources, threading.get_ident(), os.getpid()
        self._waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._writing = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def next(self) -> dict[str, Any]:
        """The next question; waits for it."""
        return self._waiting.get()

    def answer(self, **answer: Any) -> None:
        """Raises TypeError for what JSON does not know, and ValueError for text that is no Unicode."""
        line = json.dumps(answer, default=_plain, ensure_ascii=False).encode() + b"\n"
        if os.getpid() != self._mine:
            os._exit(0)  # the class has forked, and this is not who was asked
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
        """The line of the person's own at which the main thread is."""
        frame: FrameType | None = sys._current_frames()[self._main]
        while frame is not None:
            found = users_frame(Call(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name), self._sources)
            if found is not None:
                return found.where
            frame = frame.f_back
        return None


def main(code: Path, cwd: Path) -> int:
    """Make the class and answer for it; 1 when it has failed, and that has been told."""
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
    """The Python number of a scalar of numpy or torch."""
    if callable(item := getattr(value, "item", None)):
        return item()
    raise TypeError(f"{type(value).__name__} is no number, text, list or dictionary")


if __name__ == "__main__":
    # Threads of the class' own have no say in whether this ends.
    status = main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stderr.flush()
    os._exit(status)

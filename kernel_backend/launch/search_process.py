"""Run a search method that the user has written as a class in a cell, in a child process, with a time limit per call.

The process runs as the Unix user who runs the trainings, with the experiment's interpreter and code, and ends when the
service does.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_backend.errors import SearchFailed
from kernel_backend.model.record import Value
from kernel_backend.model.search.records import Settings
from kernel_backend.model.search.space import Space
from kernel_backend.model.trial import Failure
from kernel_backend.model.versions import read

ANSWER_S = 30.0
START_S = 300.0  # time for the imports of the cell
WHERE_S = 2.0  # time for the process to report its position after a timeout
_SAID = 2000  # bytes of its last output that an error quotes
MOST = 2**20  # bytes of an answer


class ChildSearchProcess:
    """Client of a search class of the user (see `kernel_backend.search.custom`), which runs in a child process.

    The first call starts the process. A call raises SearchFailed if the class raises an error (its failure record is
    `details["failure"]`), if the process exits, or if it does not answer in time. The process is then killed, and later
    calls raise the same error.
    """

    def __init__(
        self,
        python: str,
        code: Path,
        cwd: Path,
        settings: Settings,
        space: Space,
        log: Path,
        env: Mapping[str, str] | None = None,
        answer_s: float = ANSWER_S,
        start_s: float = START_S,
    ) -> None:
        """Create the client; the first call starts the process.

        `python` is the interpreter, `code` the folder of the experiment's unpacked code, and `cwd` the working folder.
        `settings` and `space` are passed to the class. `log` is the file for the process's output. `answer_s` limits
        the seconds of each call, and `start_s` those for importing the code.
        """
        self._command = [python, "-P", "-m", "kernel_backend.runner.search_process", str(code), str(cwd)]
        self._cwd, self._log, self._env = cwd, log, env
        self._settings, self._space, self._name = settings, space, settings.source or "the search"
        self._answer_s, self._start_s = answer_s, start_s
        self._child: subprocess.Popen[bytes] | None = None
        self._failure: SearchFailed | None = None
        self._unread = b""

    def interval(self) -> Any:
        """Return how many units (epochs or steps) a trial trains before the user's class judges it.

        It is the attribute `interval` of the class, unchecked; None if the class has none, so that trials train to the
        end.
        """
        return self._call("interval")

    def ask(self, trial: int) -> Any:
        """Call the class's `ask` for trial number `trial`, and return its result as JSON.

        That is the hyperparameters of the trial, the number of a paused trial to resume, or None for nothing now.
        """
        return self._call("ask", trial)

    def tell(self, trial: int, params: dict[str, Value], unit: int, value: float) -> Any:
        """Report a result of a trial to the class's `tell`, and return its answer: None to continue, "pause" or "stop".

        `value` is the metric of the trial after `unit` epochs or steps. The answer is returned as it is, unchecked.
        """
        return self._call("tell", trial, params, unit, value)

    def close(self) -> None:
        """Kill the process, and all processes that it has started in its session; a later call starts a new one."""
        if self._child is not None:
            _end(self._child)
            self._child = None

    def _call(self, call: str, *arguments: Any) -> Any:
        if self._failure is not None:
            raise self._failure
        try:
            if self._child is None:
                self._start()
            return self._answer({"call": call, "arguments": arguments}, self._answer_s)
        except SearchFailed as error:
            self._failure = error
            self.close()
            raise

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                env=None if self._env is None else dict(self._env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._unread = b""
        first = {"settings": self._settings.to_json(), "space": self._space.to_json()}
        self._answer(first, self._start_s)

    def _answer(self, question: dict[str, Any], seconds: float) -> Any:
        what = f"{self._name}.{question['call']}()" if "call" in question else f"{self._name}()"
        self._send(question)
        line = self._line(seconds)
        if line is None:
            raise SearchFailed(f"{what} did not answer within {seconds:g} s{self._where()}")
        if not line:
            raise SearchFailed(f"the process of {what} {self._how_it_ended()}")
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SearchFailed(f"the answer of {what} cannot be read: {error}") from None
        if "failure" in found:
            failure = read(Failure, found["failure"])
            where = f" ({failure.frames[-1].where})" if failure.frames else ""
            raise SearchFailed(f"{what} raised {failure.type}: {failure.message}{where}", failure=found["failure"])
        return found["answer"]

    def _send(self, question: dict[str, Any]) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has exited, which the end of its output shows
            self._child.stdin.write(json.dumps(question).encode() + b"\n")
            self._child.stdin.flush()

    def _line(self, seconds: float) -> bytes | None:
        """Return the next line that the process writes; b"" if its output has ended.

        None if no line comes within `seconds`.
        """
        assert self._child is not None
        assert self._child.stdout is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(deadline - time.monotonic()):
                    return None
                piece = os.read(self._child.stdout.fileno(), 65536)
                if not piece:
                    return b""
                self._unread += piece
                if len(self._unread) > MOST:
                    raise SearchFailed(f"{self._name} answered with more than {MOST // 2**20} MiB")
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _where(self) -> str:
        """Return the line that the user's class is executing, as ` (it is at cell [4] line 3)`, for an error message.

        "" if it is unknown.
        """
        self._send({"call": "where"})
        line = self._line(WHERE_S)
        where = json.loads(line).get("where") if line else None
        return f" (it is at {where})" if where else ""

    def _how_it_ended(self) -> str:
        assert self._child is not None
        try:
            code = self._child.wait(WHERE_S)
        except subprocess.TimeoutExpired:
            return "closed the files by which it is asked"
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        said = self._log.read_bytes()[-_SAID:].decode(errors="replace").strip().splitlines()
        return how + (f"; it said last: {said[-1]}" if said else "")


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # the process does not read requests any more
                pipe.close()

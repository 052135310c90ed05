"""What users wrote is read by processes with limits of their own: text that takes minutes or gigabytes harms no other.

A process of these reads again and again, so that an ordinary definition costs a millisecond more. It runs nothing of a
user's: it parses. Functions and their arguments go there, and results come back, by pickle: it is a child of ours.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from kernel_backend.errors import InvalidRequest, from_json

AT_ONCE = 2  # processes
CPU_S = 10.0  # that one call may compute
WALL_S = 60.0  # and last: of a machine that is busy, or a disk that does not answer
MEMORY = 2**30  # bytes of address space
LENGTH = struct.Struct(">Q")

SMALL = 32 * 2**10  # bytes of source that are read at once where they arrive: a fraction of a second at the worst

A = TypeVar("A")


class Confined:
    """Calls of plain functions in processes that may not take long, nor much memory.

    One user has one call at a time: others do not wait behind what theirs take.
    """

    def __init__(self, cpu_s: float = CPU_S, memory: int = MEMORY, wall_s: float = WALL_S) -> None:
        self._limits, self._wall_s = (cpu_s, memory), wall_s
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        # Of their own: threads that wait for these processes shall not be missed elsewhere.
        self._threads = ThreadPoolExecutor(AT_ONCE, "confined")
        self._children: dict[int, _Child] = {}  # by the thread that it works for

    async def call(self, user: str, function: Callable[..., A], *arguments: Any, size: int | None = None) -> A:
        """What a function of a module answers; raises what it raises, and InvalidRequest beyond the limits.

        `size` is that of the source in bytes, where it is known: a small one needs no process.
        """
        turn = self._turns.setdefault(user, asyncio.Lock())
        async with turn:
            if size is not None and size <= SMALL:
                return await asyncio.to_thread(shallow, function, *arguments)
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._answer, pickle.dumps((function, arguments))
            )

    def close(self) -> None:
        """End the processes."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for child in list(self._children.values()):
            child.kill()

    def _answer(self, question: bytes) -> Any:
        try:
            child = self._children.get(threading.get_ident()) or self._begin()
            answer = child.ask(question, self._wall_s)
            if answer is None and child.left():  # of itself, since it had become large: before this question
                answer = self._begin().ask(question, self._wall_s)
        except BaseException:  # half an answer may still be to be read: it is no one else's
            self._end()
            raise
        if answer is None:
            self._end()
            raise InvalidRequest(
                f"the code of this snapshot takes more than {self._limits[0]:g} s or "
                f"{self._limits[1] // 2**20} MiB to be read: make it shorter, or simpler"
            )
        kind, value = pickle.loads(answer)
        if kind == "answer":
            return value
        raise from_json(value, value["status"])

    def _begin(self) -> _Child:
        """Start a process for this thread, known before its first question: `close` ends that, too."""
        child = self._children[threading.get_ident()] = _Child(*self._limits)
        return child

    def _end(self) -> None:
        if (child := self._children.pop(threading.get_ident(), None)) is not None:
            child.kill()


def shallow(function: Callable[..., A], *arguments: Any) -> A:
    """Call a function that reads source; raises InvalidRequest where that is nested too deeply for Python."""
    try:
        return function(*arguments)
    except (MemoryError, RecursionError):
        message = "the code of this snapshot is nested too deeply, or too large, to be read: split it"
        raise InvalidRequest(message) from None


class _Child:
    """One process, asked one question after the other."""

    def __init__(self, cpu_s: float, memory: int) -> None:
        command = [sys.executable, "-P", "-m", "kernel_backend.confined", str(cpu_s), str(memory)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")

    def left(self) -> bool:
        """Whether it has ended by itself and in order; it has closed its pipes already."""
        try:
            return self._process.wait(1.0) == 0
        except subprocess.TimeoutExpired:
            return False

    def ask(self, question: bytes, seconds: float) -> bytes | None:
        """Its answer; None where it has died over it, or took so long that it was killed."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        late = threading.Timer(seconds, self._process.kill)
        late.start()
        try:
            stdin.write(LENGTH.pack(len(question)) + question)
            stdin.flush()
            head = stdout.read(LENGTH.size)
            size = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else -1
            body = stdout.read(size) if size > 0 else b""
            return body if len(body) == size else None
        except BrokenPipeError:
            return None
        finally:
            late.cancel()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

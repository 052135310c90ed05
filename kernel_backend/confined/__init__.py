"""Parse the code of users in separate processes with limits on time and memory.

Code that takes minutes or gigabytes to parse then affects no other user. The processes are reused, so that parsing
ordinary code takes only a millisecond longer. They only parse the code and do not run it. Functions, arguments and
results are pickled, which is safe between the service and its own child processes.
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
CPU_S = 10.0  # of CPU time per call
WALL_S = 60.0  # of wall time per call: the machine may be busy, or a disk may not respond
MEMORY = 2**30  # bytes of address space
LENGTH = struct.Struct(">Q")

SMALL = 8 * 2**10  # bytes of source, in all files together, that are parsed in a thread of the service

A = TypeVar("A")


class Confined:
    """Caller of functions in processes with limits on time and memory.

    Each user has one call at a time, so that many calls of one user do not delay those of others.
    """

    def __init__(self, cpu_s: float = CPU_S, memory: int = MEMORY, wall_s: float = WALL_S) -> None:
        self._limits, self._wall_s = (cpu_s, memory), wall_s
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        # Threads of its own: waiting for these processes must not use up the default pool.
        self._threads = ThreadPoolExecutor(AT_ONCE, "confined")
        self._children: dict[int, _Child] = {}  # by the id of the thread that uses it

    async def call(self, user: str, function: Callable[..., A], *arguments: Any, size: int | None = None) -> A:
        """Call a function in a confined process for a user, and return its result; raise the errors that it raises.

        The function must be importable (it is pickled). Raises InvalidRequest if it exceeds the limits. `size` is the
        number of bytes of source that the function parses, None if unknown; a small source is parsed in a thread of
        this process instead.
        """
        lock = self._locks.setdefault(user, asyncio.Lock())
        async with lock:
            if size is not None and size <= SMALL:
                return await asyncio.to_thread(shallow, function, *arguments)
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._answer, pickle.dumps((function, arguments))
            )

    def close(self) -> None:
        """End all confined processes."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for child in list(self._children.values()):
            child.kill()

    def _answer(self, question: bytes) -> Any:
        try:
            child = self._children.get(threading.get_ident()) or self._begin()
            answer = child.ask(question, self._wall_s)
            if answer is None and child.left():  # exited before this call, because it had become large
                answer = self._begin().ask(question, self._wall_s)
        except BaseException:  # unread bytes of an answer must not reach another call
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
        """Start, register and return a process for the calls of this thread; `close` ends all registered ones."""
        child = self._children[threading.get_ident()] = _Child(*self._limits)
        return child

    def _end(self) -> None:
        if (child := self._children.pop(threading.get_ident(), None)) is not None:
            child.kill()


def shallow(function: Callable[..., A], *arguments: Any) -> A:
    """Call a function that parses source in this process, and return its result.

    Raises InvalidRequest if the source is nested too deeply, or needs too much memory.
    """
    try:
        return function(*arguments)
    except (MemoryError, RecursionError):
        message = "the code of this snapshot is nested too deeply, or too large, to be read: split it"
        raise InvalidRequest(message) from None


class _Child:
    """Process that executes calls, one at a time, for one thread of the service."""

    def __init__(self, cpu_s: float, memory: int) -> None:
        command = [sys.executable, "-P", "-m", "kernel_backend.confined", str(cpu_s), str(memory)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")

    def left(self) -> bool:
        """Return True if the process exits with code 0 within a second."""
        try:
            return self._process.wait(1.0) == 0
        except subprocess.TimeoutExpired:
            return False

    def ask(self, question: bytes, seconds: float) -> bytes | None:
        """Send a request to the process and return its answer; None if it exits, or is killed after `seconds`."""
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
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

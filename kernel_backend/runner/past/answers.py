"""Answer a restarted program's setup as at its first start: the time, random bytes, temporary names and free ports.

A library that made a folder of the time of day goes on in that folder, as its program does. Answers are kept by the
line that asked, from the program's start to its first training loop, and functions of the standard library are replaced
for so long. Names are made of these answers, so only lines of the program itself, and of libraries that make names, are
answered. A request that another library signs with the time gets today's.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime as dates
import gc
import os
import random
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

MOST = 256  # answers that are kept of one line
_LONGEST = 1024  # random bytes of an answer
_NAMERS = ("torch.utils.tensorboard", "tensorboard", "tensorboardX", "hydra", "loguru")
_localtime, _time_ns = time.localtime, time.time_ns
_names = tempfile._RandomNameSequence  # type: ignore[attr-defined]

Ask = Callable[[Callable[[], Any]], Any]  # give the first start's answer, or that of the given function, which is kept
Given = dict[str, list[Any]]  # answers in their order, by the line that asked


class Answers:
    """Answers that a program's setup has had at its first start; in a restart it gets the same."""

    def __init__(self, builtins: Mapping[str, Any]) -> None:
        """Set up without answers; `builtins` is the dict by which the program's own functions are recognised."""
        self.given: Given = {}
        self._left: dict[str, deque[Any]] | None = None
        self._builtins, self._on, self._thread = builtins, False, threading.get_ident()
        self._restores: list[Callable[[], None]] = []

    def replay(self, given: Given) -> None:
        """Give the answers of the first start, each once; a line that asks more often is answered as today."""
        self.given = given
        self._left = {line: deque(answers) for line, answers in given.items()}

    @contextlib.contextmanager
    def throughout(self) -> Iterator[None]:
        """Record answers, or give them again, in the `with` block, until `end` is called."""
        try:
            with contextlib.suppress(Exception):  # what cannot be replaced is answered as today
                self._replace()
            yield
        finally:
            self.end()

    def end(self) -> None:
        """Put the functions back in their places; the program may hold one still, which does no more than before."""
        self._on = False
        while self._restores:
            self._restores.pop()()

    def asked(self, what: str, frame: FrameType, libraries: Sequence[str], program: bool = True) -> Ask | None:
        """Return how to answer the line that runs in `frame`, None if it is answered as today.

        It is if it belongs to none of the modules `libraries`, nor with `program` to the program.
        """
        if not self._on or threading.get_ident() != self._thread:
            return None
        module = str(frame.f_globals.get("__name__"))
        if frame.f_builtins is self._builtins:
            known = program
        else:
            known = any(module == each or module.startswith(f"{each}.") for each in libraries)
        return partial(self._answer, f"{what} {module}:{frame.f_lineno}") if known else None

    def _answer(self, line: str, make: Callable[[], Any]) -> Any:
        if self._left is not None:
            left = self._left.get(line)
            return left.popleft() if left else make()
        made, known = make(), self.given.setdefault(line, [])
        if len(known) < MOST:
            known.append(made)
        return made

    # Replaced functions

    def _replace(self) -> None:
        self._on = True
        for each in _REPLACED:
            asked = partial(self.asked, each.name, libraries=each.libraries, program=each.program)
            self._put(each.module, each.name, Replacement(getattr(each.module, each.name), each.act, asked))
        self._put(_names, "__next__", self._next_name())
        self._put(socket.socket, "bind", self._bind())
        for name in ("now", "utcnow"):
            self._put_in_c(dates.datetime, name, classmethod(self._moment(name)))

    def _put(self, owner: Any, name: str, function: Any) -> None:
        """Set an attribute until the end; what another has set meanwhile stays."""
        own, real = name in vars(owner), getattr(owner, name)

        def restore() -> None:
            if vars(owner).get(name) is function:
                setattr(owner, name, real) if own else delattr(owner, name)

        setattr(owner, name, function)
        self._restores.append(restore)

    def _put_in_c(self, kind: type, name: str, method: Any) -> None:
        """Set a method of a class written in C until the end: in the class, as modules hold it under many names."""
        (own,) = gc.get_referents(vars(kind))  # the dict of which `vars` is a view
        real = own[name]

        def put(function: Any) -> None:
            own[name] = function
            ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))

        put(method)
        self._restores.append(lambda: put(real))

    def _moment(self, name: str) -> Callable[..., Any]:
        real = vars(dates.datetime)[name]

        def moment(kind: type[dates.datetime], *args: Any, **named: Any) -> Any:
            ask = self.asked(name, sys._getframe(1), _NAMERS)
            if ask is None:
                return real.__get__(None, kind)(*args, **named)
            seconds = ask(_time_ns) // 1000 / 1e6
            if name == "now":
                return kind.fromtimestamp(seconds, *args, **named)
            return kind.fromtimestamp(seconds, dates.UTC).replace(tzinfo=None)

        return moment

    def _next_name(self) -> Callable[[Any], str]:
        real = _names.__next__

        def next_name(names: Any) -> str:
            ask = self.asked("name", sys._getframe(1), ("tempfile",))
            return str(real(names) if ask is None else ask(lambda: real(names)))

        return next_name

    def _bind(self) -> Callable[..., None]:
        real = socket.socket.bind

        def bind(opened: socket.socket, address: Any) -> None:
            """Bind a socket to a free port: that of the first start, if it is still free."""
            free = isinstance(address, tuple) and len(address) > 1 and address[1] == 0
            ask = self.asked("port", sys._getframe(1), ("socketserver",)) if free else None
            if ask is None:
                real(opened, address)
                return

            def today() -> int:
                real(opened, address)
                return int(opened.getsockname()[1])

            port = ask(today)
            if not opened.getsockname()[1]:
                try:
                    real(opened, (address[0], port, *address[2:]))
                except OSError:
                    real(opened, address)

        return bind


class Replacement:
    """A replaced function of the standard library; like the real one, it is not bound by a class that holds it."""

    def __init__(self, real: Callable[..., Any], act: Callable[..., Any], asked: Callable[..., Ask | None]) -> None:
        """Replace `real` by `act(ask, real, ...)` for the lines that `asked` names."""
        self.__wrapped__, self._act, self._asked = real, act, asked

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the real function, or give the answer of the first start."""
        ask = self._asked(frame=sys._getframe(1))
        if ask is not None:
            with contextlib.suppress(Exception):  # other arguments than those of which names are made
                return self._act(ask, self.__wrapped__, *args, **named)
        return self.__wrapped__(*args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self.__wrapped__,)  # a checkpoint holds the real function


class _Replaced(NamedTuple):
    module: Any
    name: str
    act: Callable[..., Any]
    libraries: Sequence[str]
    program: bool = True


def _itself(function: Any) -> Any:
    return function


def _clock(of: Callable[..., Any], takes: int = 0) -> Callable[..., Any]:
    """Return an act for a function of the clock; with more than `takes` arguments it is given a time."""
    return lambda ask, real, *args: of(real, ask(_time_ns), *args) if len(args) == takes else real(*args)


def _bytes(ask: Ask, real: Callable[[int], bytes], size: int) -> bytes:
    if size > _LONGEST:
        raise ValueError(size)
    found = bytes.fromhex(ask(lambda: real(size).hex()))
    return found if len(found) == size else real(size)


def _same(ask: Ask, real: Callable[[], Any]) -> Any:
    return ask(real)


_REPLACED = (
    _Replaced(time, "time", _clock(lambda real, ns: ns / 1e9), _NAMERS),
    _Replaced(time, "time_ns", _clock(lambda real, ns: ns), _NAMERS),
    *(
        _Replaced(time, name, _clock(lambda real, ns: real(ns / 1e9)), _NAMERS)
        for name in ("localtime", "gmtime", "ctime")
    ),
    _Replaced(time, "asctime", _clock(lambda real, ns: real(_localtime(ns / 1e9))), _NAMERS),
    _Replaced(time, "strftime", _clock(lambda real, ns, form: real(form, _localtime(ns / 1e9)), takes=1), _NAMERS),
    _Replaced(os, "urandom", _bytes, ("uuid",)),
    _Replaced(random, "_urandom", _bytes, ("random",)),
    _Replaced(uuid, "uuid1", lambda ask, real: uuid.UUID(ask(lambda: real().hex)), ()),
    # By these a library acts on its process and machine, and a program may choose its data by the machine.
    _Replaced(socket, "gethostname", _same, _NAMERS, program=False),
    _Replaced(os, "getpid", _same, _NAMERS, program=False),
)

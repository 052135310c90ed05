"""Manage the agents of all users: start them when needed, drop those that do not answer, and limit every wait.

An agent is a helper process that runs as the user.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from kernel_backend.agent.protocol import (
    VALUE_LIMIT,
    Closed,
    ProtocolError,
    error_from_reply,
    receive,
    receive_bytes,
    receive_head,
    send_frame,
)
from kernel_backend.agent.records import Greeting
from kernel_backend.errors import PlaceUnavailable
from kernel_backend.model.record import problem_text
from kernel_backend.model.versions import MOST_VALUES, check_values
from kernel_backend.retry import RetryPolicy

ANSWER_S = 5.0  # for quick operations on a busy machine
START_S = 30.0  # for an agent to start and answer: imports may come from a cold disk
WAIT_S = 20.0  # for a request to wait for a start, which continues without it; clients wait for 30 s
PING_S = 2.0  # for a ping of a running agent that has not answered another request
LONG_S = 3600.0  # for reading checkpoints and building environments
FORGIVEN_S = 60.0  # since the last failure, after which failures are counted from 0
RETRY = RetryPolicy((0.0, 1.0, 2.0, 5.0, 15.0, 60.0))  # pauses before an agent that has failed is started again
MOST_ANSWERED = 4 * MOST_VALUES  # values in an answer: a page of a spool has a line more than fits into it
AT_ONCE = 8  # requests per user, so that an unresponsive agent blocks at most this many threads

Spawn = Callable[[str, socket.socket], None]  # starts a user's agent with this socket as stdin; raises Forbidden
A = TypeVar("A")
_log = logging.getLogger(__name__)


class Body(NamedTuple):
    """Bytes that follow a request to an agent: `size` bytes in all, in pieces."""

    size: int
    pieces: Iterable[bytes | memoryview]

    @classmethod
    def of(cls, data: bytes) -> Body:
        """Return a body that has these bytes as its only piece."""
        return cls(len(data), (data,))


NOTHING = Body(0, ())


class _Ended(PlaceUnavailable):
    """Error: an agent ended during a request, which may be repeated with a new agent."""


class Agents:
    """Connections to the agents of all users; if one user's agent fails, other users are not affected.

    Every method that calls an agent raises PlaceUnavailable if the agent does not answer, and Forbidden if none may be
    started for this user. Methods may be called from any thread.
    """

    def __init__(
        self, spawn: Spawn, answer_s: float = ANSWER_S, start_s: float = START_S, wait_s: float = WAIT_S
    ) -> None:
        self._spawn, self._answer_s, self._start_s, self._wait_s = spawn, answer_s, start_s, wait_s
        self._guard = threading.Lock()
        self._known: dict[str, _Agent] = {}

    def check(self, user: str) -> None:
        """Raise PlaceUnavailable or Forbidden unless the agent of a user answers."""
        self.ask(user, "hello", GREETING)

    def ask(
        self,
        user: str,
        op: str,
        kind: TypeAdapter[A],
        body: Body = NOTHING,
        limit: float | None = None,
        **arguments: Any,
    ) -> A:
        """Have a user's agent perform the operation `op`, and return the result, validated as `kind`.

        `arguments` are those of the operation, and `body` has bytes to send after them. `limit` is the number of
        seconds for the answer. Errors that the operation raises in the agent are raised here.
        """
        with self.open(user, op, kind, body, limit, **arguments) as (answer, _):
            return answer

    @contextmanager
    def open(
        self,
        user: str,
        op: str,
        kind: TypeAdapter[A],
        body: Body = NOTHING,
        limit: float | None = None,
        **arguments: Any,
    ) -> Iterator[tuple[A, Link]]:
        """Have a user's agent perform an operation; yield the result, and the link to read further bytes from.

        The link is closed when the block ends. The arguments are those of `ask`.
        """
        with self._agent(user).permit(), ExitStack() as stack:
            answer, link = self.begin(user, op, kind, body, limit, **arguments)
            stack.enter_context(link)
            yield answer, link

    def begin(
        self,
        user: str,
        op: str,
        kind: TypeAdapter[A],
        body: Body = NOTHING,
        limit: float | None = None,
        **arguments: Any,
    ) -> tuple[A, Link]:
        """Have a user's agent perform an operation; return the result, and the link, which stays open.

        Further requests can be sent on the link. The caller must close it. The arguments are those of `ask`.
        """
        agent, seconds = self._agent(user), limit or self._answer_s
        try:
            return agent.asked(op, kind, body, seconds, arguments)
        except _Ended:
            if body.size:  # its pieces may be used up
                raise
            return agent.asked(op, kind, body, seconds, arguments)

    def close(self) -> None:
        """Disconnect all agents, which then exit; gangs that they have started continue to run."""
        with self._guard:
            for agent in self._known.values():
                agent.close()
            self._known.clear()

    def _agent(self, user: str) -> _Agent:
        with self._guard:
            return self._known.setdefault(user, _Agent(user, self._spawn, self._start_s, self._wait_s))


class _Agent:
    """Agent of one user: it is started when it is first needed, and again if it has ended."""

    def __init__(self, user: str, spawn: Spawn, start_s: float, wait_s: float) -> None:
        self._user, self._spawn, self._start_s, self._wait_s = user, spawn, start_s, wait_s
        self._guard = threading.Lock()  # never held while waiting
        self._starting: Future[socket.socket] | None = None
        self._closed = False
        self._permits = threading.BoundedSemaphore(AT_ONCE)
        self._control: socket.socket | None = None
        self._failures, self._failed_at, self._why = 0, 0.0, ""

    @contextmanager
    def permit(self) -> Iterator[None]:
        """Count one more concurrent request of the user in the block; raise PlaceUnavailable if there are too many."""
        if not self._permits.acquire(blocking=False):
            raise self._out_of_reach(f"{AT_ONCE} questions are being answered already")
        try:
            yield
        finally:
            self._permits.release()

    def asked(
        self, op: str, kind: TypeAdapter[A], body: Body, seconds: float, arguments: dict[str, Any]
    ) -> tuple[A, Link]:
        """Send a request to the agent; return its result, validated as `kind`, and the link, which stays open."""
        link = Link(self, self._running(), seconds)
        try:
            link.put(op, arguments, body)
            return link.value(kind), link
        except BaseException:
            link.close()
            raise

    def failed(self, control: socket.socket, why: str, *, ended: bool = False) -> PlaceUnavailable:
        """Disconnect an agent that has failed, given by its socket `control`; return the error for the caller to raise.

        `why` is the reason, and `ended` says that the agent has ended.
        """
        with self._guard:
            if self._control is control:
                self._give_up(why)
        return self._out_of_reach(why, ended=ended)

    def silent(self, control: socket.socket, op: str, seconds: float) -> PlaceUnavailable:
        """Return the error for a request `op` that was not answered within `seconds`, for the caller to raise.

        If the agent does not answer a short request (a ping) either, it is disconnected. `control` is its socket.
        """
        why = f"{op} was not answered within {seconds:g} s"
        try:
            with Link(self, control, PING_S, ping=True) as link:
                link.put("hello", {}, NOTHING)
                link.value(GREETING)
        except (PlaceUnavailable, ProtocolError, Closed, OSError):
            return self.failed(control, why)
        with self._guard:
            self._count(why)
        return self._out_of_reach(why)

    def close(self) -> None:
        """Disconnect the agent, if one runs; one that is still being started is disconnected as soon as it runs."""
        with self._guard:
            self._closed = True
            if self._control is not None:
                self._control.close()
                self._control = None

    def _running(self) -> socket.socket:
        """Return the socket of the running agent, which is started if there is none.

        Raises PlaceUnavailable if it takes too long to start.
        """
        with self._guard:
            self._rest()
            if self._control is not None:
                return self._control
            if self._starting is None:
                self._starting = Future()
                threading.Thread(target=self._begin, args=(self._starting,), daemon=True).start()
            starting = self._starting
        try:
            return starting.result(self._wait_s)
        except TimeoutError:
            raise self._out_of_reach("its agent is still starting; this is tried again") from None

    def _begin(self, starting: Future[socket.socket]) -> None:
        """Start an agent; give its socket, or the error, to all requests that wait for the future `starting`."""
        try:
            control = self._start()
        except BaseException as error:
            with self._guard:
                self._starting = None
            starting.set_exception(error)
            return
        with self._guard:
            self._starting = None
            if self._closed:
                control.close()
            else:
                self._control = control
        starting.set_result(control)

    def _rest(self) -> None:
        """Raise PlaceUnavailable for some seconds after a failure, so that not every new request waits in vain."""
        if time.monotonic() - self._failed_at < RETRY.pause(self._failures):
            raise self._out_of_reach(f"{self._why}; this is tried again")

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(PING_S)
        try:
            with theirs:
                self._spawn(self._user, theirs)
            with Link(self, ours, self._start_s, ping=True) as link:
                link.put("hello", {}, NOTHING)
                found = link.value(GREETING)
        except (ProtocolError, Closed, OSError) as error:
            ours.close()
            why = f"no agent could be started: {self._never_began(error)}"
            with self._guard:
                self._give_up(why)
            raise self._out_of_reach(why) from None
        except BaseException:
            ours.close()
            raise
        _log.info("the agent of %s is process %d", self._user, found.pid)
        return ours

    def _never_began(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"it did not begin within {self._start_s:g} s"
        if isinstance(error, Closed | BrokenPipeError | ConnectionResetError):  # else the helper has not answered
            return "it has ended at once; is their home there, and has it room?"
        return str(error)

    def _give_up(self, why: str) -> None:
        _log.warning("the agent of %s is given up: %s", self._user, why)
        self._count(why)
        if self._control is not None:
            self._control.close()  # the agent exits when it notices this
            self._control = None

    def _count(self, why: str) -> None:
        now = time.monotonic()
        self._failures = self._failures + 1 if now - self._failed_at < FORGIVEN_S else 1
        self._failed_at, self._why = now, why

    def _out_of_reach(self, why: str, *, ended: bool = False) -> PlaceUnavailable:
        return (_Ended if ended else PlaceUnavailable)(f"the files of {self._user} cannot be reached just now: {why}")


class Link:
    """Connection to an agent for one request or several.

    Connection errors are raised as PlaceUnavailable; with `ping`, unchanged.
    """

    def __init__(self, agent: _Agent, control: socket.socket, seconds: float, *, ping: bool = False) -> None:
        self._agent, self._control, self._seconds, self._ping = agent, control, seconds, ping
        self._op = ""
        self._size = 0  # of the last answer's body
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(seconds)
        with theirs, self._reaching():
            socket.send_fds(control, [b"?"], [theirs.fileno()])

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(self, op: str, arguments: dict[str, Any], body: Body = NOTHING) -> None:
        """Send a request for operation `op`, and its body."""
        self._op = op
        with self._reaching():
            question = {"op": op, "arguments": arguments, "bytes": body.size}
            send_frame(self._socket, to_json(question, inf_nan_mode="constants"))  # a search may report NaN
        for piece in body.pieces:
            with self._reaching():
                self._socket.sendall(piece)

    def value(self, kind: TypeAdapter[A]) -> A:
        """Return the agent's result, validated as `kind`; raise the error that the operation raised in the agent."""
        until = time.monotonic() + self._seconds
        with self._reaching():
            head = receive_head(self._socket, until)
            data = b"" if head.error else receive(self._socket, VALUE_LIMIT, until)
        if head.error is not None:
            raise error_from_reply(head.error)
        self._size = head.bytes
        with self._reaching():
            try:
                check_values(data, MOST_ANSWERED)
                return kind.validate_json(data)
            except ValidationError as error:
                raise ProtocolError(f"{self._op}: {problem_text(error)[:200]}") from None
            except RecursionError as error:
                raise ProtocolError(f"{self._op}: {error}") from None

    @property
    def size(self) -> int:
        """Return how many bytes the agent sends after its result."""
        return self._size

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes that the agent sends after its result, in pieces.

        Raises PlaceUnavailable if a piece does not arrive within the time limit.
        """
        self._socket.settimeout(self._seconds)
        pieces = receive_bytes(self._socket, self._size)
        while True:
            with self._reaching():
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def close(self) -> None:
        """Close the connection, even if the request has not been answered."""
        self._socket.close()

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Convert errors of the connection in the block to PlaceUnavailable.

        Such an error means that the agent has ended, did not answer in time, or sent an invalid answer.
        """
        try:
            yield
        except (TimeoutError, Closed, ProtocolError, OSError) as error:
            if self._ping:
                raise
            if isinstance(error, TimeoutError):
                raise self._agent.silent(self._control, self._op, self._seconds) from None
            if isinstance(error, ProtocolError):
                raise self._agent.failed(self._control, f"its agent answered what cannot be read ({error})") from None
            raise self._agent.failed(self._control, "its agent has ended", ended=True) from None


GREETING = TypeAdapter(Greeting)

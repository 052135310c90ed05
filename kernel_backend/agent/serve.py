"""Run an agent's loop: each request comes as a new socket, passed over stdin, and is answered in its own thread."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections import deque
from pathlib import Path

from pydantic_core import to_json

from kernel_backend.agent.operations import OPERATIONS, AgentOperations
from kernel_backend.agent.protocol import (
    AnswerHead,
    Closed,
    ProtocolError,
    error_reply,
    receive_bytes,
    receive_question,
    send,
    send_bytes,
    send_frame,
)
from kernel_backend.errors import DaylightError
from kernel_backend.home import home as default_home
from kernel_backend.home import make_private
from kernel_backend.workspaces.base import Contents, SearchClassProcess

SUBFOLDER = "hub"  # folder next to the files of the user's own service, so that two services never share gangs
ASKER_CALLS = ("interval", "ask", "tell")
LOG_LIMIT = 1_000_000  # bytes of agent.log, after which it is truncated

_log = logging.getLogger(__name__)


def serve() -> None:
    """Answer requests until the service closes stdin or dies.

    Gangs then continue to run, and the user's next agent finds them.
    """
    control = socket.socket(fileno=0)
    home = default_home() / SUBFOLDER
    home.mkdir(exist_ok=True, mode=0o700)
    _log_to(home / "agent.log")
    make_private(home, group=False)
    loop = asyncio.new_event_loop()
    operations = AgentOperations(home, loop)
    threading.Thread(target=_listen, args=(control, operations), daemon=True).start()
    loop.run_forever()


def _listen(control: socket.socket, operations: AgentOperations) -> None:
    try:
        while True:
            data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            if not data:
                break
            for each in descriptors:
                link = socket.socket(fileno=each)
                threading.Thread(target=_converse, args=(link, operations), daemon=True).start()
    except OSError:
        _log.exception("the service cannot be reached any more")
    os._exit(0)  # ends work in progress, for which no caller waits any more


def _converse(link: socket.socket, operations: AgentOperations) -> None:
    with link:
        try:
            _answer(link, operations)
        except (Closed, ProtocolError, OSError) as error:
            _log.info("a question has ended: %s", error)


def _answer(link: socket.socket, operations: AgentOperations) -> None:
    question = receive_question(link)
    body = receive_bytes(link, question.bytes)
    try:
        if question.op not in OPERATIONS:
            raise ProtocolError(f"there is no operation {question.op!r}")
        found = getattr(operations, question.op)(body, **question.arguments)
    except Exception as error:  # any error is reported to the service
        if not isinstance(error, DaylightError | OSError):
            _log.exception("%s", question.op)
        deque(body, maxlen=0)  # bytes left unread would reset the connection before the answer is read
        send(link, AnswerHead(error=error_reply(error)))
        return
    if isinstance(found, Contents):
        send(link, AnswerHead(bytes=found.size))
        send_frame(link, b"null")
        send_bytes(link, found.pieces, found.size)
    elif question.op == "asker":
        _be_asked(link, found)
    else:
        send(link, AnswerHead())
        send_frame(link, to_json(found, inf_nan_mode="strings"))


def _be_asked(link: socket.socket, asked: SearchClassProcess) -> None:
    """Call methods of the user's search class as the service requests by this socket, until the socket is closed.

    `asked` is the client of the process in which the class runs.
    """
    try:
        send(link, AnswerHead())
        send_frame(link, b"null")
        while True:
            question = receive_question(link)
            if question.op not in ASKER_CALLS:
                raise ProtocolError(f"there is no question {question.op!r}")
            try:
                found = getattr(asked, question.op)(**question.arguments)
            except Exception as error:
                send(link, AnswerHead(error=error_reply(error)))
            else:
                send(link, AnswerHead())
                send_frame(link, to_json(found, inf_nan_mode="constants"))
    finally:
        asked.close()


def _log_to(path: Path) -> None:
    if path.exists() and path.stat().st_size > LOG_LIMIT:
        path.unlink()
    logging.basicConfig(filename=path, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

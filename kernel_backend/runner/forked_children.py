"""Give processes that the user's program forks what they have in plain Python: signals, streams, and an own end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator

from kernel_backend.runner.process_end import end_process

_FAILED = 1


def plain_signal(number: signal.Signals, reset: Callable[[], object]) -> None:
    """Call `reset`, which removes this process's handler of the signal `number`, in the children that it forks.

    A signal that a child gets before waits until then, so that the child ends by it.
    """
    before = threading.local()  # the signals that the forking thread had blocked

    def block() -> None:
        before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {number})

    def restore() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before.mask)

    def begin() -> None:
        reset()
        restore()

    os.register_at_fork(before=block, after_in_parent=restore, after_in_child=begin)


def in_children(change: Callable[[], object]) -> None:
    """Call the bound method `change` in every child that this process forks while the method's object exists."""
    method = weakref.WeakMethod(change)

    def call() -> None:
        if (found := method()) is not None:
            found()

    os.register_at_fork(after_in_child=call)


@contextlib.contextmanager
def children_end_here() -> Iterator[None]:
    """Run the user's code in the `with` block; end a process that it forked where that process leaves the block.

    The rank's own work after the block, such as its last checkpoint, is not the child's.
    """
    rank = os.getpid()
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        if os.getpid() == rank:
            raise
        error = raised
    if os.getpid() != rank:
        end_process(_status(error))


def _status(error: BaseException | None) -> int:
    """Return the exit code of a child that ends by `error`, which is printed as Python prints it."""
    match error:
        case None | SystemExit(code=None):
            return 0
        case SystemExit(code=int(code)):
            return code & 0xFF
        case SystemExit(code=text):
            print(text, file=sys.stderr)
        case _:
            traceback.print_exception(error)
    return _FAILED

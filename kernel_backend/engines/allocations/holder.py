"""Run gangs of a search (each the ranks of one attempt) one after another in an allocation, as the service orders.

This process alone starts the gangs, each once, and reports each start before it happens. The service may therefore die
at any instant: its death neither ends a gang nor causes one to be started twice. If no gang has run for some time, this
process exits, which frees the nodes, even if the service is gone. Only the standard library is imported, since the
process stays in the memory of its node.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from kernel_backend.engines.allocations.lines import EVENTS, ORDERS, append_line, read_lines

TURN_S = 0.1
KILL_AGAIN_S = 1.0  # between tries to kill a gang, as a try may come before all of its processes have begun


class Channel(Protocol):
    """Channel by which the service sends orders to the process that holds an allocation, and gets its events."""

    def orders(self) -> Sequence[dict[str, Any]]:
        """Return the orders that have arrived since the last call."""

    def tell(self, event: dict[str, Any]) -> None:
        """Report an event to the service; raise OSError if it cannot be stored now."""


class Steps(Protocol):
    """Starter of gangs in an allocation, one gang at a time."""

    def start(self, order: dict[str, Any]) -> None:
        """Start the processes of a gang; raise OSError if they cannot be started."""

    def poll(self) -> int | None:
        """Return the exit code of the gang that was started last; None while it runs."""

    def release(self) -> None:
        """Make the gang that runs save a checkpoint and exit, without waiting for that."""

    def kill(self) -> None:
        """Try to kill all processes of the gang."""


class FileChannel:
    """Channel through files in a folder that the service and the holder's node both see."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._offset = folder, 0

    def orders(self) -> Sequence[dict[str, Any]]:
        """Return the orders that the service has written since the last call."""
        found, self._offset = read_lines(self._folder / ORDERS, self._offset)
        return found

    def tell(self, event: dict[str, Any]) -> None:
        """Append an event to the file of events; raise OSError if that fails."""
        append_line(self._folder / EVENTS, **event)


class Holder:
    """Process that holds one allocation (such as a Slurm job), or one node of it, and executes the service's orders."""

    def __init__(self, channel: Channel, steps: Steps, idle: float) -> None:
        """Create a holder that takes orders from `channel` and starts gangs by `steps`.

        It gives the allocation back when no gang has run for `idle` seconds.
        """
        self._channel, self._steps, self._idle = channel, steps, idle
        self._known = set[str]()
        self._waiting: dict[str, dict[str, Any]] = {}  # orders to start, by key
        self._key = ""  # name of the gang that runs
        self._kill_at: float | None = None  # monotonic time of the next try to kill it
        self._untold: list[dict[str, Any]] = []  # events not stored yet, for example on a full disk
        self._problem = ""  # why the last event could not be stored
        self._busy_at = time.monotonic()
        self.closing = ""  # reason why no more gangs are started; "" while they are

    def begin(self) -> None:
        """Report that this process has started, since the allocation's time counts from then on.

        If the report cannot be stored now, it is repeated in later turns.
        """
        self._tell(event="begun")
        self._told()

    def stay(self) -> None:
        """Restart the count of idle seconds after which this process gives the allocation back."""
        self._busy_at = time.monotonic()

    def turn(self) -> bool:
        """Do one round: execute new orders, start or watch a gang, report events.

        Returns False when this process should exit.
        """
        for order in self._channel.orders():  # all are read before the next start, which a later one may withdraw
            self._take(order)
        if self._key and (code := self._steps.poll()) is not None:
            self._ended(code)
        if not self._key and self._waiting and not self.closing and self._told():
            self._start(self._waiting[next(iter(self._waiting))])
        if self._key and self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = time.monotonic() + KILL_AGAIN_S
            self._steps.kill()
        if not self._key and not self.closing and time.monotonic() > self._busy_at + self._idle:
            self.closing = f"no trial wanted it for {self._idle:g} s"
        if not self._key and self.closing:
            self._tell(event="closed", why=self.closing)
            self._told()
            return False
        self._told()
        return True

    def _take(self, order: dict[str, Any]) -> None:
        key, what = str(order.get("key", "")), order.get("order")
        if what == "start" and key not in self._known:
            self._known.add(key)
            self._waiting[key] = order
        elif what == "close":
            self.closing = str(order.get("why") or "it was given back")
        elif what in ("release", "kill", "withdrawn") and key in self._waiting:
            del self._waiting[key]
            self._tell(event="ended", key=key, code=None)
        elif what == "release" and key == self._key:
            self._steps.release()
        elif what == "kill" and key == self._key:
            self._kill_at = time.monotonic()

    def _start(self, order: dict[str, Any]) -> None:
        self._tell(event="started", key=order["key"])
        if not self._told():  # the event must be stored first: a gang that may have run must not be started elsewhere
            self._untold.clear()
            return
        self._key = order["key"]
        del self._waiting[self._key]
        try:
            self._steps.start(order)
        except OSError as error:
            print(f"{self._key} could not be started: {error}", flush=True)
            self._ended(127)

    def _ended(self, code: int) -> None:
        self._tell(event="ended", key=self._key, code=code)
        self._key, self._kill_at, self._busy_at = "", None, time.monotonic()

    def _tell(self, **event: Any) -> None:
        self._untold.append({"at": time.time(), **event})

    def _told(self) -> bool:
        """Report the events that the service has not stored yet, in order; return whether it has now stored all."""
        try:
            while self._untold:
                self._channel.tell(self._untold[0])
                del self._untold[0]
            self._problem = ""
        except OSError as error:
            if str(error) != self._problem:  # it is tried again in each turn
                self._problem = str(error)
                print(f"the events of the allocation cannot be stored now: {error}", flush=True)
        return not self._untold

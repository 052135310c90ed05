"""Run gangs of a search one after another in a pod that is kept for them, as the service orders.

    python -P -m kernel_backend.engines.kubernetes.holder

The environment variable DAYLIGHT_HOLDER has the id of the allocation and the secret of this program. It gets its orders
from the service by HTTP, so that the nodes need no shared disk. Each gang's launcher is a child process in a session of
its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from kernel_backend.engines.allocations.choice import margin
from kernel_backend.engines.allocations.holder import TURN_S, Holder
from kernel_backend.errors import DaylightError
from kernel_backend.launch.node import node_index
from kernel_backend.launch.service_address import client_of
from kernel_backend.model.launch.holder import HOLDER, HolderCredentials, HolderEvent, HolderReport
from kernel_backend.model.launch.staging import UNHEARD
from kernel_backend.parent_death import adopt_descendants, keep_to_itself

POLL_S = 20.0  # longest time for which the service holds back its answer
RETRY_S = 1.0  # after a request that failed
UNKNOWN_S = 5.0  # the same if the service does not know the allocation
ALONE_S = 60.0  # for the order to leave to come
UNHEARD_S = 300.0  # for a first answer of the service; then this process exits with an error
ASK_S = 1.0  # between signals to a launcher that is asked to exit
_UNKNOWN = (401, 404)  # statuses of the service's answer where it does not know the allocation
_GONE = {"order": "close", "why": "the service does not know this allocation any more"}


class ServiceChannel:
    """Channel by which a holder reports events to the service and gets orders, by HTTP requests that can be repeated.

    A separate thread waits for orders, so that events are reported at once.
    """

    def __init__(self, credentials: HolderCredentials, node: int) -> None:
        self._credentials, self._node = credentials, node
        self._client = self._new_client()
        self._orders = deque[dict[str, Any]]()
        self._received, self._again_at = 0, 0.0
        self.heard = False  # whether the service has ever answered
        self.problem = ""  # why the last request failed

    def start(self) -> None:
        """Start the thread that waits for orders."""
        threading.Thread(target=self._wait, name="orders", daemon=True).start()

    def orders(self) -> Sequence[dict[str, Any]]:
        """Return the orders that have arrived since the last call."""
        return [self._orders.popleft() for _ in range(len(self._orders))]

    def tell(self, event: dict[str, Any]) -> None:
        """Report an event to the service; raise OSError if the service does not confirm that it has stored it."""
        if time.monotonic() < self._again_at:
            raise OSError(self.problem)
        report = HolderReport(node=self._node, events=(HolderEvent(**event),), orders=self._received)
        try:
            self._client.holder_report(self._credentials.allocation, self._credentials.token, report)
        except Exception as error:  # any error: the gang goes on, and the event is told again
            self._failed(error)
            self._again_at = time.monotonic() + RETRY_S
            raise OSError(self.problem) from None
        self.heard = True

    def _wait(self) -> None:
        client = self._new_client()
        while True:
            report = HolderReport(node=self._node, orders=self._received, wait=POLL_S)
            try:
                found = client.holder_report(self._credentials.allocation, self._credentials.token, report).orders
            except Exception as error:  # any error: without this thread nobody could end the gang
                if unknown := self._failed(error):
                    self._orders.append(_GONE)
                time.sleep(UNKNOWN_S if unknown else RETRY_S)
                continue
            self.heard = True
            self._received += len(found)
            self._orders.extend(each.model_dump() for each in found)

    def _failed(self, error: Exception) -> bool:
        """Store why a request failed; return True if the service has answered that it does not know the allocation."""
        self.problem = str(error) or type(error).__name__
        unknown = isinstance(error, DaylightError) and error.http_status in _UNKNOWN
        self.heard = self.heard or unknown
        return unknown

    def _new_client(self) -> Any:
        given = self._credentials
        return client_of(given.urls, given.token, given.uid, Path(given.home) if given.home else None)


class ChildSteps:
    """Starter of launchers as child processes of the holder; all processes of a gang are its descendants.

    A process whose parent has ended becomes a child of the holder.
    """

    def __init__(self) -> None:
        adopt_descendants()
        self.leaving = ""  # why every gang is to exit; "" while gangs may run
        self._launcher: subprocess.Popen[bytes] | None = None
        self._asked, self._ask_at = False, 0.0  # whether the gang is to exit, and when its launcher is signalled next

    def start(self, order: dict[str, Any]) -> None:
        """Start the launcher of a gang on this node; raise OSError if it cannot be started."""
        self._asked = False
        self._launcher = subprocess.Popen(
            order["command"],
            cwd=order["cwd"],
            env={**os.environ, **order["environment"]},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def poll(self) -> int | None:
        """Return the exit code of the launcher that was started last; None as long as a process of its gang is left.

        Once the launcher has exited, the other processes of the gang are killed.
        """
        if self._launcher is None or (code := self._launcher.poll()) is None:
            self._ask()
            return None
        self.kill()
        return None if self._members() else code

    def release(self) -> None:
        """Have the launcher make its ranks save a checkpoint and exit; `poll` signals it each second from now on."""
        self._asked = True

    def kill(self) -> None:
        """Kill all processes of the gang that exist now."""
        for process in self._members():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _ask(self) -> None:
        """Send SIGURG to the launcher, at most once a second, if the gang is to exit.

        SIGURG does no harm to a launcher that has just been started and does not handle it yet.
        """
        now = time.monotonic()
        if self._launcher is not None and (self._asked or self.leaving) and now >= self._ask_at:
            self._ask_at = now + ASK_S
            self._launcher.send_signal(signal.SIGURG)

    def _members(self) -> list[psutil.Process]:
        """Return the running processes of the gang.

        Descendants that have ended and whose own parent has ended as well are reaped, so that no zombies stay.
        """
        found = []
        for each in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error, ChildProcessError):
                if each.status() != psutil.STATUS_ZOMBIE:
                    found.append(each)
                elif self._launcher is None or each.pid != self._launcher.pid:
                    os.waitpid(each.pid, os.WNOHANG)
        return found


def hold(holder: Holder, channel: ServiceChannel, steps: ChildSteps, seconds: float) -> None:
    """Execute orders in rounds until this process should exit.

    `seconds` is the length of the allocation; some time before its end, the gang that runs is made to save a checkpoint
    and exit. If the service has never answered within five minutes, exit with an error.
    """
    began = time.monotonic()
    while True:
        lasted = time.monotonic() - began
        if lasted > seconds - margin(seconds):
            steps.leaving = steps.leaving or "its time is nearly over"
        if not channel.heard:
            holder.stay()
            if lasted > UNHEARD_S:
                raise SystemExit(f"{UNHEARD}: {channel.problem}")
        holder.closing = holder.closing or steps.leaving
        if not holder.turn():
            return
        time.sleep(TURN_S)


def main() -> None:
    """Run gangs in this pod until no gang needs it, the service gives it back, or Kubernetes ends it."""
    steps = ChildSteps()

    def ended_by_kubernetes(*_: object) -> None:
        steps.leaving = "Kubernetes ends its pod"

    signal.signal(signal.SIGTERM, ended_by_kubernetes)  # first: the kernel ignores it for a container's first process
    credentials = HolderCredentials.model_validate_json(os.environ.pop(HOLDER))
    keep_to_itself()  # gangs are code of users
    node = node_index("kubernetes", os.environ).node
    channel = ServiceChannel(credentials, node)
    # The first node's holder tells when all are to leave; the others leave by themselves where nobody orders it.
    holder = Holder(channel, steps, credentials.idle if node == 0 else 2 * credentials.idle + ALONE_S)
    holder.begin()
    channel.start()
    hold(holder, channel, steps, credentials.seconds)


if __name__ == "__main__":
    main()

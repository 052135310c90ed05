"""Offer locked environments to nodes that cannot read the service's home directory and build them themselves.

Nodes get an environment's lock file and its wheels.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from kernel_backend.environments.wheelhouse import NodeEnvironment, Wheelhouse
from kernel_backend.errors import DaylightError
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.snapshot import Environment
from kernel_backend.store.base import Store

PIECE = 4 * 2**20  # bytes of a wheel in one answer
AGAIN_S = 60.0  # before a failed download is tried again: the network may have been down
_log = logging.getLogger(__name__)


class _Failed(NamedTuple):
    at: float  # monotonic time of the failure
    why: str


class NodeEnvironments:
    """Provider of lock files and wheels for nodes that build environments themselves.

    If a node can reach no package index, the service downloads all wheels for it.
    """

    def __init__(
        self,
        store: Store,
        recorded: Callable[[str], Environment],
        admit: Callable[[AttemptId], Awaitable[object]],
        home: Path,
        closed: bool = False,
    ) -> None:
        """Create the operations; `recorded` returns the environment of a snapshot.

        `admit` raises an error unless the attempt runs on nodes that cannot read the service's home directory. If the
        service is `closed`, it runs no code of users to get wheels.
        """
        self._store, self._recorded, self._admit = store, recorded, admit
        self._wheelhouse = Wheelhouse(home, closed)
        self._guard = threading.Lock()
        self._downloading: set[str] = set()  # ids of environments whose wheels are being downloaded
        self._failed: dict[str, _Failed] = {}

    async def offer(self, key: AttemptId, *, everything: bool) -> NodeEnvironment:
        """Return the environment of an attempt, with the wheels that no package index has.

        With `everything`, all wheels are included; while they are being downloaded, the answer is not `ready`. Raises
        NoEnvironment, NotFound, and Fenced if the attempt is over.
        """
        await self._admit(key)
        experiment = await asyncio.to_thread(self._store.experiment, key.experiment)
        environment = await asyncio.to_thread(self._recorded, experiment.snapshot)
        offered = await asyncio.to_thread(self._wheelhouse.offer, environment)
        if not everything:
            return offered
        return await asyncio.to_thread(self._complete, offered, Path(experiment.python))

    async def wheel(self, key: AttemptId, wheel: str, offset: int) -> bytes:
        """Return a piece of a wheel from a byte offset; raises NotFound, and Fenced if the attempt is over."""
        await self._admit(key)
        return await asyncio.to_thread(self._wheelhouse.piece, wheel, offset, PIECE)

    def _complete(self, offered: NodeEnvironment, python: Path) -> NodeEnvironment:
        """Return `offered` with the wheels of all packages if they are downloaded; otherwise start to download them.

        While a download runs, the returned record is not `ready`; after a recent failure it names the `problem`.
        `python` is the interpreter for which wheels are downloaded.
        """
        if (wheels := self._wheelhouse.downloaded(offered.environment)) is not None:
            return offered.model_copy(update={"wheels": (*offered.wheels, *wheels)})
        id = offered.environment.id
        with self._guard:
            if id in self._downloading:
                return offered.model_copy(update={"ready": False})
            failed = self._failed.get(id)
            if failed is not None and time.monotonic() - failed.at < AGAIN_S:
                return offered.model_copy(update={"problem": failed.why})
            self._downloading.add(id)
        # A daemon thread: the service must not wait for a download when it ends.
        threading.Thread(target=self._download, args=(offered, python), daemon=True).start()
        return offered.model_copy(update={"ready": False})

    def _download(self, offered: NodeEnvironment, python: Path) -> None:
        id = offered.environment.id
        begun = time.monotonic()
        try:
            self._wheelhouse.download(offered.environment, offered.lock, python)
        except Exception as error:  # any error is reported to the nodes that wait
            why = error.message if isinstance(error, DaylightError) else f"{type(error).__name__}: {error}"
            _log.warning("the wheels of environment %s: %s", id[:12], why)
            self._failed[id] = _Failed(time.monotonic(), why)
        else:
            _log.info("downloaded the wheels of environment %s in %.1f s", id[:12], time.monotonic() - begun)
            self._failed.pop(id, None)
        finally:
            with self._guard:
                self._downloading.discard(id)

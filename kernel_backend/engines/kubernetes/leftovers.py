"""Delete Kubernetes objects that a service left when it was killed, and that no gang, allocation or check needs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence

from kernel_backend.engines.folders import GangFolders
from kernel_backend.engines.kubernetes.manifests import Manifest, of_pool
from kernel_backend.engines.kubernetes.objects import GangObjects
from kernel_backend.engines.kubernetes.quantities import seconds
from kernel_backend.engines.kubernetes.submission import read_submission
from kernel_backend.errors import DaylightError

EVERY_S = 60.0
YOUNG_S = 120.0  # age up to which an owner may belong to a gang that is being submitted
_log = logging.getLogger(__name__)


class Leftovers:
    """Task that deletes the objects of a pool that belong to no listed gang, no allocation and no running check."""

    def __init__(
        self, objects: GangObjects, folders: GangFolders, service: str, pool: str, others: Callable[[], Collection[str]]
    ) -> None:
        """Create the task for the objects of a pool of this service.

        `others` returns the names of the ConfigMaps of running checks and of allocations, which must be kept.
        """
        self._objects, self._folders, self._labels = objects, folders, of_pool(service, pool)
        self._others = others
        self._task: asyncio.Task[None] | None = None
        self._looked_at = 0.0  # at once after a start: an earlier service may have left some

    def look(self) -> None:
        """Start a search for objects to delete in the background, at most once a minute."""
        due = not self._looked_at or time.monotonic() > self._looked_at + EVERY_S
        if due and (self._task is None or self._task.done()):
            self._looked_at = time.monotonic()
            self._task = asyncio.create_task(self._delete(), name="leftovers in Kubernetes")

    async def _delete(self) -> None:
        try:
            owners = await self._objects.owners(self._labels)
            known = await asyncio.to_thread(self._of_gangs) | set(self._others())
            for name in unknown(owners, known, time.time()):
                _log.warning("%s belongs to no gang, allocation or check: it is deleted with its pods", name)
                await self._objects.remove(name)
        except DaylightError as error:
            _log.info("leftovers in Kubernetes cannot be looked for now: %s", error)

    def _of_gangs(self) -> set[str]:
        found = (read_submission(self._folders.of(key)) for key in self._folders.listed())
        return {each.name for each in found if each is not None}


def unknown(owners: Sequence[Manifest], known: Collection[str], now: float) -> list[str]:
    """Return the names of the ConfigMaps in `owners` that are not in `known` and whose objects may be deleted.

    Each owns the objects of a gang, an allocation or a check. Those created in the last two minutes are left out, as
    their gangs may not be recorded yet.
    """
    return [
        each["metadata"]["name"]
        for each in owners
        if each["metadata"]["name"] not in known
        and now > (seconds(each["metadata"].get("creationTimestamp")) or 0.0) + YOUNG_S
    ]

"""Store the archives of snapshots under their sha256."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.api.body_memory import SNAPSHOT_LIMIT
from kernel_backend.errors import NotFound


class SnapshotsHandler(ApiHandler):
    """Handler that stores the archive of a snapshot, or tells whether it is stored."""

    body_limit = SNAPSHOT_LIMIT

    async def head(self, id: str) -> None:
        """Return whether a snapshot is stored: status 204 if it is, 404 if not."""
        if not await self.service.submissions.has_snapshot(id):
            raise NotFound(f"snapshot {id[:12]} is not stored")
        self.set_status(204)

    async def put(self, id: str) -> None:
        """Store an archive under its sha256, which the path names; an archive with another digest is refused."""
        await self.service.submissions.put_snapshot(self.user, id, self.body)
        self.set_status(204)


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/snapshots/{id}": SnapshotsHandler,
}

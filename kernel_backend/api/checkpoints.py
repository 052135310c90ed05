"""List, read, verify, delete and pin checkpoints, and delete those that no retention rule retains."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.model.checkpoints import GarbageRequest


class CheckpointsHandler(ApiHandler):
    """Handler that lists an experiment's committed checkpoints."""

    async def get(self, number: str) -> None:
        """List the committed checkpoints of an experiment, and why each is retained."""
        self.reply({"checkpoints": await self.service.checkpoints.listed(self.user, int(number))})


class CheckpointHandler(ApiHandler):
    """Handler that reads and deletes a checkpoint."""

    async def get(self, number: str, trial: str, checkpoint: str) -> None:
        """Read a checkpoint's manifest: its parts with sizes and digests, and its metadata."""
        data = await self.service.checkpoints.manifest(self.user, int(number), int(trial), checkpoint)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(data)

    async def delete(self, number: str, trial: str, checkpoint: str) -> None:
        """Delete a checkpoint for good. Refused if it is pinned or may be needed to resume."""
        await self.service.checkpoints.delete(self.user, int(number), int(trial), checkpoint)
        self.set_status(204)


class PartHandler(ApiHandler):
    """Handler that serves the bytes of a part, which is one of a checkpoint's files."""

    async def get(self, number: str, trial: str, checkpoint: str, part: str) -> None:
        """Read the bytes of a part (file) of a checkpoint from an offset on; the manifest has their digest."""
        asked = int(number), int(trial), checkpoint, part, self.integer("offset", 0)
        size, pieces = await self.service.checkpoints.part(self.user, *asked)
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Content-Length", size)  # without it a truncated answer would look complete
        async for piece in pieces:
            self.write(piece)
            await self.flush()  # waits for a slow client


class VerifyHandler(ApiHandler):
    """Handler that verifies every byte of a checkpoint."""

    async def post(self, number: str, trial: str, checkpoint: str) -> None:
        """Read every byte of a checkpoint, and return whether any is damaged."""
        self.reply(await self.service.checkpoints.verify(self.user, int(number), int(trial), checkpoint))


class PinHandler(ApiHandler):
    """Handler that pins a checkpoint."""

    async def post(self, number: str, trial: str, checkpoint: str) -> None:
        """Pin a checkpoint, so that the retention rules do not delete it."""
        self.reply(await self.service.checkpoints.pin(self.user, int(number), int(trial), checkpoint, True))


class UnpinHandler(ApiHandler):
    """Handler that unpins a checkpoint."""

    async def post(self, number: str, trial: str, checkpoint: str) -> None:
        """Unpin a checkpoint, so that the retention rules may delete it."""
        self.reply(await self.service.checkpoints.pin(self.user, int(number), int(trial), checkpoint, False))


class CollectHandler(ApiHandler):
    """Handler that deletes checkpoints by the retention rules."""

    async def post(self) -> None:
        """Delete the checkpoints of one experiment, or of all, that the retention rules no longer retain.

        With `dry_run` they are only listed.
        """
        self.reply(await self.service.checkpoints.collect(self.user, self.parse(GarbageRequest)))


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/experiments/{number}/checkpoints": CheckpointsHandler,
    "/api/experiments/{number}/checkpoints/{trial}/{checkpoint}": CheckpointHandler,
    "/api/experiments/{number}/checkpoints/{trial}/{checkpoint}/verify": VerifyHandler,
    "/api/experiments/{number}/checkpoints/{trial}/{checkpoint}/pin": PinHandler,
    "/api/experiments/{number}/checkpoints/{trial}/{checkpoint}/unpin": UnpinHandler,
    "/api/experiments/{number}/checkpoints/{trial}/{checkpoint}/parts/{part}": PartHandler,
    "/api/gc": CollectHandler,
}

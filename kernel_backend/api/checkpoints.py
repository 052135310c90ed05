"""Checkpoints: list them, read their files, verify, delete and pin one, and have the rules applied to all."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.model.checkpoints import GarbageRequest


class CheckpointsHandler(ApiHandler):
    """What was committed."""

    async def get(self, number: str) -> None:
        """List the committed checkpoints of an experiment, and why each is kept."""
        self.reply({"checkpoints": await self.service.checkpoints.listed(self.user, int(number))})


class CheckpointHandler(ApiHandler):
    """One of them."""

    async def get(self, number: str, trial: str, checkpoint: str) -> None:
        """Read a checkpoint's manifest: its parts with their sizes and digests, and what surrounds them."""
        data = await self.service.checkpoints.manifest(self.user, int(number), int(trial), checkpoint)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(data)

    async def delete(self, number: str, trial: str, checkpoint: str) -> None:
        """Delete a checkpoint for good; what is pinned, or may be needed to go on, is refused."""
        await self.service.checkpoints.delete(self.user, int(number), int(trial), checkpoint)
        self.set_status(204)


class PartHandler(ApiHandler):
    """A file of one."""

    async def get(self, number: str, trial: str, checkpoint: str, part: str) -> None:
        """Read the bytes of a part from an offset on; the manifest has their digest."""
        asked = int(number), int(trial), checkpoint, part, self.integer("offset", 0)
        size, pieces = await self.service.checkpoints.part(self.user, *asked)
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Content-Length", size)  # without it a broken answer would look like a whole one
        async for piece in pieces:
            self.write(piece)
            await self.flush()  # which waits for a slow reader


class VerifyHandler(ApiHandler):
    """A look at every byte."""

    async def post(self, number: str, trial: str, checkpoint: str) -> None:
        """Read every byte of a checkpoint and tell what was found."""
        self.reply(await self.service.checkpoints.verify(self.user, int(number), int(trial), checkpoint))


class PinHandler(ApiHandler):
    """A wish to keep it."""

    async def post(self, number: str, trial: str, checkpoint: str) -> None:
        """Keep a checkpoint whatever the rules say."""
        self.reply(await self.service.checkpoints.pin(self.user, int(number), int(trial), checkpoint, True))


class UnpinHandler(ApiHandler):
    """No such wish any more."""

    async def post(self, number: str, trial: str, checkpoint: str) -> None:
        """Let the rules decide about a checkpoint again."""
        self.reply(await self.service.checkpoints.pin(self.user, int(number), int(trial), checkpoint, False))


class CollectHandler(ApiHandler):
    """The rules, applied."""

    async def post(self) -> None:
        """Delete what the rules let go, of one experiment or of all; a dry run says what that would be."""
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

"""Read and delete checkpoints."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.routes.operations import TAR


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


class FilesHandler(ApiHandler):
    """Handler that serves a checkpoint as one file."""

    async def get(self, number: str, trial: str, checkpoint: str) -> None:
        """Download the files and the manifest of a checkpoint as a TAR archive."""
        size, pieces = await self.service.checkpoints.archive(self.user, int(number), int(trial), checkpoint)
        self.set_header("Content-Type", TAR)
        self.set_header("Content-Length", size)  # without it a truncated answer would look complete
        name = f"checkpoint-{number}.{trial}-{checkpoint}.tar"
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        async for piece in pieces:
            self.write(piece)
            await self.flush()  # waits for a slow client


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/experiments/{number}/checkpoints/{trial}/{checkpoint}": CheckpointHandler,
    "/api/experiments/{number}/checkpoints/{trial}/{checkpoint}/parts/{part}": PartHandler,
    "/api/experiments/{number}/checkpoints/{trial}/{checkpoint}/files.tar": FilesHandler,
}

"""List and read artifacts, as media types that keep browsers from running their untrusted content."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.model.artifacts import PICTURES, UNKNOWN

# Said as what they are: no browser runs anything in them. HTML, SVG and the like are bytes.
HARMLESS = PICTURES | {"text/plain", "text/csv", "application/json", "application/pdf", "application/zip"}


class ArtifactsHandler(ApiHandler):
    """Handler that lists an experiment's artifacts."""

    async def get(self, number: str) -> None:
        """List the artifacts that the trials of an experiment have saved."""
        self.reply({"artifacts": await self.service.artifacts.listed(self.user, int(number))})


class ArtifactHandler(ApiHandler):
    """Handler that serves the bytes of an artifact."""

    async def get(self, number: str, trial: str, name: str) -> None:
        """Read the bytes of an artifact: images are displayed, everything else is downloaded."""
        found = await self.service.artifacts.read(self.user, int(number), int(trial), name)
        media = found.artifact.media if found.artifact.media in HARMLESS else UNKNOWN
        how = "inline" if media in PICTURES else "attachment"
        self.set_header("Content-Type", media)
        self.set_header("Content-Disposition", f'{how}; filename="{found.artifact.file}"')
        self.set_header("Content-Security-Policy", "sandbox; default-src 'none'")
        self.set_header("Content-Length", found.size)  # without it a broken answer would look like a whole one
        async for piece in found.pieces:
            self.write(piece)
            await self.flush()  # which waits for a slow reader


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/experiments/{number}/artifacts": ArtifactsHandler,
    "/api/experiments/{number}/trials/{trial}/artifacts/{artifact}": ArtifactHandler,
}

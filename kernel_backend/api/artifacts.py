"""Serve artifacts; their content is not trusted, so responses are such that no browser executes it."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.model.artifacts import PICTURES, UNKNOWN

# Sent with their media type, because browsers do not execute them. HTML, SVG and others are sent as bytes.
HARMLESS = PICTURES | {"text/plain", "text/csv", "application/json", "application/pdf", "application/zip"}


class ArtifactHandler(ApiHandler):
    """Handler that serves the bytes of an artifact."""

    async def get(self, number: str, trial: str, name: str) -> None:
        """Read the bytes of an artifact from an offset on: images are displayed, everything else is downloaded."""
        skipped = self.integer("offset", 0)
        found = await self.service.artifacts.read(self.user, int(number), int(trial), name)
        media = found.artifact.media if found.artifact.media in HARMLESS else UNKNOWN
        how = "inline" if media in PICTURES else "attachment"
        self.set_header("Content-Type", media)
        self.set_header("Content-Disposition", f'{how}; filename="{found.artifact.file}"')
        self.set_header("Content-Security-Policy", "sandbox; default-src 'none'")
        # Without it a truncated answer would look complete.
        self.set_header("Content-Length", max(found.size - skipped, 0))
        async for piece in found.pieces:
            self.write(piece[skipped:])
            skipped = max(skipped - len(piece), 0)
            await self.flush()  # waits for a slow client


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/experiments/{number}/trials/{trial}/artifacts/{artifact}": ArtifactHandler,
}

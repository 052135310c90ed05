"""Define the base class of HTML pages, which requires sign-in and sets a content security policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_backend.api.base import AuthenticatedHandler
from kernel_backend.errors import Unauthenticated
from kernel_backend.identity.base import Browsers
from kernel_backend.model.cluster.people import Person

BUNDLE = Path(__file__).parent / "static"  # built from labextension/src/page; names contain a digest of the content
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='%23e07b24'%3E"
    "%3Cpath d='M6 16a6 6 0 0 1 12 0zM2 18.5h20v2H2zM11 3h2v4h-2zM1 14h3v2H1zM20 14h3v2h-3z'/%3E%3C/svg%3E"
)
# Allow our own files and inline images; no inline scripts, and no frames around the page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def built(suffix: str, page: str = "main") -> str | None:
    """Return the name of a page's newest script (`.js`) or style sheet (`.css`); None if it is not built."""
    found = max(BUNDLE.glob(f"{page}-*{suffix}"), key=lambda path: path.stat().st_mtime, default=None)
    return None if found is None else found.name


class Page(AuthenticatedHandler):
    """Base class of handlers of HTML pages.

    A page's requests to `/api/` carry its cookies, and the value of the `_xsrf` cookie also as X-XSRFToken.
    """

    @property
    def person(self) -> Person:
        """Return the signed-in user."""
        return self.user

    async def prepare(self) -> None:
        """Authenticate the request; redirect users who are not signed in to the hub's sign-in page."""
        try:
            await super().prepare()
        except Unauthenticated:
            browsers: Browsers | None = self.settings["browsers"]
            if browsers is None:
                raise
            self.redirect(browsers.sign_in(self))
        self.prepared = True

    def set_default_headers(self) -> None:
        """Set the service's headers, and a content security policy."""
        super().set_default_headers()
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("Referrer-Policy", "same-origin")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Write the error's message as plain text for users."""
        error = self.as_ours(status_code, kwargs.get("exc_info", (None, None, None))[1])
        self.set_status(error.http_status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(error.message)


class PublicPage(Page):
    """Base class of handlers that need no sign-in, since what they return holds no data of users."""

    async def prepare(self) -> None:
        """Skip authentication."""
        self.prepared = self.known = True

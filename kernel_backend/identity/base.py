"""Define the interfaces that map tokens and browsers to users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kernel_backend.model.cluster.people import Person

if TYPE_CHECKING:
    from tornado.web import RequestHandler


class Identity(Protocol):
    """Authenticator of users by their tokens."""

    async def who(self, token: str, *, remembered: bool = False) -> Person | None:
        """Return the user of a token; None where it is unknown. Raises Forbidden for a valid token without access here.

        Raises ServiceUnreachable where the user cannot be looked up now; with `remembered`, a user cached earlier is
        returned instead.
        """


class Browsers(Protocol):
    """Authenticator of users by their browser's cookies: pages have no token that they could send."""

    async def who(self, handler: RequestHandler, *, remembered: bool = False) -> Person | None:
        """Return the signed-in user; None without one, and for a request that another page may have caused.

        Raises as `Identity.who` does.
        """

    def token(self, handler: RequestHandler) -> str:
        """Return the user's token for an Identity; empty without a signed-in user."""

    def sign_in(self, handler: RequestHandler) -> str:
        """Return the URL of the sign-in page, which redirects back to the requested page."""

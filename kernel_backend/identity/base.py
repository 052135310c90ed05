"""Define the interfaces that identify users by tokens, or by the cookies of browsers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kernel_backend.model.cluster.people import Person

if TYPE_CHECKING:
    from tornado.web import RequestHandler


class Identity(Protocol):
    """Provider that identifies users by their tokens."""

    async def who(self, token: str, *, remembered: bool = False) -> Person | None:
        """Return the user to whom a token belongs; None if the token is unknown.

        Raises Forbidden for a valid token without access. If the user cannot be looked up now, ServiceUnreachable is
        raised or, with `remembered`, the user of an earlier lookup returned.
        """


class Browsers(Protocol):
    """Provider that identifies users of browsers by cookies, since pages send no token."""

    async def who(self, handler: RequestHandler, *, remembered: bool = False) -> Person | None:
        """Return the signed-in user; None if there is none, or if another site may have caused the request.

        Raises the same errors as `Identity.who`.
        """

    def token(self, handler: RequestHandler) -> str:
        """Return the signed-in user's token, as `Identity.who` takes it; "" if there is none."""

    @property
    def links(self) -> dict[str, str]:
        """Return the URLs of what is beside the service, by the text of their links, such as `Home`."""

    def sign_in(self, handler: RequestHandler) -> str:
        """Return the URL of the sign-in page, which redirects back to the requested page."""

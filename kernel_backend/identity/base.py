"""What an identity promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kernel_backend.model.cluster.people import Person

if TYPE_CHECKING:
    from tornado.web import RequestHandler


class Identity(Protocol):
    """Knows the people by their tokens."""

    async def who(self, token: str, *, remembered: bool = False) -> Person | None:
        """Whose token this is; None for nobody's. Raises Forbidden for a token that is known and good for other things.

        Raises ServiceUnreachable where that cannot be found out just now; with `remembered`, whom it has known before
        is then answered all the same.
        """


class Browsers(Protocol):
    """Knows the people by what their browsers keep: pages have no token that they could send."""

    async def who(self, handler: RequestHandler, *, remembered: bool = False) -> Person | None:
        """Who has signed in; None for nobody, and for a request that another page may have caused. Raises as above."""

    def token(self, handler: RequestHandler) -> str:
        """What an Identity knows them by; empty where nobody has signed in."""

    def sign_in(self, handler: RequestHandler) -> str:
        """Where a browser is sent to sign in, and comes back from to the page that it asked for."""

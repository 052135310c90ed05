"""One person, one token: whoever can read the token file of this home is its Unix user."""

from __future__ import annotations

import getpass
import hmac


class LocalIdentity:
    """The Unix user who runs the service."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._name = getpass.getuser()

    def who(self, token: str) -> str | None:
        """The user's name, compared in constant time; None for any other token."""
        return self._name if hmac.compare_digest(token.encode(), self._token) else None

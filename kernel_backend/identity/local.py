"""Authenticate the Unix user of a local service by a token file that only this user can read."""

from __future__ import annotations

import hmac
import os
import pwd

from kernel_backend.model.cluster.people import Person


class LocalIdentity:
    """Provider for a service of a single user: the Unix user who runs the service."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._person = Person(name=_user(), admin=True)

    async def who(self, token: str, *, remembered: bool = False) -> Person | None:
        """Return the user who runs the service; None for a wrong token. Tokens are compared in constant time."""
        return self._person if hmac.compare_digest(token.encode(), self._token) else None


def _user() -> str:
    # The name is that of the user id: $USER changes with sudo and in containers, but an owner's name must not.
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"

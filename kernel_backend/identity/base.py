"""What an identity promises."""

from __future__ import annotations

from typing import Protocol

from kernel_backend.model.people import Person


class Identity(Protocol):
    """Knows the people by their tokens."""

    async def who(self, token: str) -> Person | None:
        """Whose token this is; None for nobody's. Raises ServiceUnreachable where that cannot be found out just now."""

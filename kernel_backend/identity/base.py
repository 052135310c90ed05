"""What an identity promises."""

from __future__ import annotations

from typing import Protocol


class Identity(Protocol):
    """Knows the people by their tokens."""

    def who(self, token: str) -> str | None:
        """The user's name; None for a token that is nobody's."""

"""Bound the memory that bodies of requests take, by the user or program that sends them."""

from __future__ import annotations

from collections import Counter

from kernel_backend.errors import TooLarge

BODY_LIMIT = 8 * 2**20  # bytes of one body
SNAPSHOT_LIMIT = 100 * 2**20
OF_PAGES = 2**16  # of a request to a page, which needs no token
PER_CALLER = 2 * SNAPSHOT_LIMIT  # of all bodies of a caller's that are being received or answered


class BodyMemory:
    """Bytes that are reserved for the bodies of requests, by caller."""

    def __init__(self) -> None:
        self._held = Counter[str]()

    def reserve(self, caller: str, size: int) -> None:
        """Reserve memory for a body of a caller's; raises TooLarge if theirs would hold more than `PER_CALLER`."""
        if self._held[caller] + size > PER_CALLER:
            raise TooLarge(
                f"requests of {caller} that are not answered yet hold {self._held[caller] / 2**20:.0f} MiB, of at most "
                f"{PER_CALLER // 2**20}: send this one ({size / 2**20:.0f} MiB) again once they are answered",
                limit=PER_CALLER,
            )
        self._held[caller] += size

    def free(self, caller: str, size: int) -> None:
        """Give memory back that was reserved."""
        self._held[caller] -= size
        if not self._held[caller]:
            del self._held[caller]

"""Limit how often a user has webhooks tested, and mails with links sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from time import monotonic

from kernel_backend.errors import Conflict

MOST_TESTS = 5
TESTS_S = 60.0
MOST_LINKS, MOST_LINKS_TO_ONE = 5, 3  # mails with a link that confirms an address, by user and to one address
LINKS_S = 86_400.0


class _Rate:
    """Times of events by key within the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._at: dict[str, list[float]] = {}

    def wait(self, key: str, most: int) -> float:
        """Return the seconds until another event of this key is allowed, of at most `most`; 0 if it is now."""
        now = monotonic()
        self._at = {each: at for each, at in self._at.items() if now - at[-1] < self._seconds}
        recent = [at for at in self._at.get(key, ()) if now - at < self._seconds]
        return self._seconds - (now - recent[-most]) if len(recent) >= most else 0.0

    def count(self, key: str) -> None:
        """Count an event of this key."""
        now = monotonic()
        self._at[key] = [*(at for at in self._at.get(key, ()) if now - at < self._seconds), now]


class LinkLimit:
    """Limit of mails with a link that confirms an address: by the user who asks for them, and to the address."""

    def __init__(self) -> None:
        self._by_user, self._to_address = _Rate(LINKS_S), _Rate(LINKS_S)

    def count(self, user: str, address: str) -> None:
        """Count a mail; raises Conflict if the user has asked for too many, or the address has got too many."""
        mailbox = _mailbox(address)
        if wait := max(self._by_user.wait(user, MOST_LINKS), self._to_address.wait(mailbox, MOST_LINKS_TO_ONE)):
            raise Conflict(
                f"{MOST_LINKS} mails with links that confirm addresses within a day are the limit of a user, and "
                f"{MOST_LINKS_TO_ONE} to one address: try again in {ceil(wait / 3600)} h"
            )
        self._by_user.count(user)
        self._to_address.count(mailbox)


def _mailbox(address: str) -> str:
    """Return an address without case and without what stands behind a `+`, which leads to the same mailbox."""
    name, _, domain = address.lower().rpartition("@")
    return f"{name.partition('+')[0]}@{domain}"


class TestLimit:
    """Limit of tests of webhooks by a user: one test at a time, and at most `MOST_TESTS` within `TESTS_S` seconds."""

    def __init__(self) -> None:
        self._rate = _Rate(TESTS_S)
        self._testing: set[str] = set()

    @contextmanager
    def of(self, user: str) -> Iterator[None]:
        """Count a test by this user; raises Conflict if they test a webhook already, or have tested too many."""
        if user in self._testing:
            raise Conflict("a test of a webhook of yours is running: wait for its result, then test the next one")
        if wait := self._rate.wait(user, MOST_TESTS):
            raise Conflict(
                f"{MOST_TESTS} tests of webhooks within {TESTS_S:g} s are the limit: try again in {ceil(wait)} s"
            )
        self._rate.count(user)
        self._testing.add(user)
        try:
            yield
        finally:
            self._testing.discard(user)

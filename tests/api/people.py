"""Provide an identity provider without a hub, with users of two groups, an admin, and a user who may only read."""

from __future__ import annotations

from kernel_backend.errors import Forbidden, ServiceUnreachable
from kernel_backend.model.cluster.people import Person

PEOPLE = {
    "dave": Person(name="dave", groups=("vision", "wrong")),
    "danielle": Person(name="danielle", groups=("vision",)),
    "eve": Person(name="eve", groups=("speech",)),
    "ada": Person(name="ada", admin=True),
    "guest": Person(name="guest", groups=("vision",), submits=False),
}


class FakeHub:
    """Identity provider whose tokens are user names; the contract test of the real one applies to it, too."""

    def __init__(self) -> None:
        self.people = dict(PEOPLE)
        self.away = False
        self.barred: set[str] = set()
        self._known: dict[str, Person] = {}

    async def who(self, token: str, *, remembered: bool = False) -> Person | None:
        if self.away:
            if remembered and token in self._known:
                return self._known[token]
            raise ServiceUnreachable("the hub does not answer")
        self._known.pop(token, None)
        if token in self.barred:
            raise Forbidden(f"this token of {token} may not use Daylight")
        person = self.people.get(token)
        if person is not None:
            self._known[token] = person
        return person

"""An identity of several people without a hub: two of one group, one of another, an admin, and one who only looks."""

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
    """Tokens are names. It keeps the promises of an Identity, which the real one's contract test asks of it too."""

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

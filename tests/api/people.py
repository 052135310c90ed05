"""Several people at one service: whoever has the token `dave` is Dave."""

from __future__ import annotations

from kernel_backend.client import Client
from kernel_backend.model.people import Person
from tests.api.served import Served

PEOPLE = {
    person.name: person
    for person in (
        Person(name="dave", groups=("vision",)),
        Person(name="danielle", groups=("vision", "speech")),
        Person(name="eve", groups=("robots",)),
        Person(name="ada", admin=True),
    )
}


class Crowd:
    """An identity that takes names for tokens."""

    async def who(self, token: str, *, remembered: bool = False) -> Person | None:
        return PEOPLE.get(token)


def as_(served: Served, name: str) -> Client:
    """A client of this person's."""
    return served.client(name)

"""Describe a user, and decide which experiments they may see."""

from __future__ import annotations

from kernel_backend.model.record import Record


class Person(Record):
    """A user whom an identity has authenticated."""

    name: str
    groups: tuple[
        str, ...
    ] = ()  # whose experiments they see; they ask for slots in the first, unless they name another
    admin: bool = False  # sees and changes everything; what they do to others' is written down
    submits: bool = True  # may have things trained

    @property
    def group(self) -> str:
        """Return the default group of the user's slot requests: their first group, else one of their own name."""
        return self.groups[0] if self.groups else self.name

    def sees(self, owner: str, group: str) -> bool:
        """Return whether the user may see an experiment of this owner and group: own, of their groups, or as admin."""
        return self.admin or self.name == owner or group in self.groups

"""Describe a user and what they may see."""

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
        """Return the group for their requests by default: a group of their own if they have no other."""
        return self.groups[0] if self.groups else self.name

    def sees(self, owner: str, group: str) -> bool:
        """Return whether they may see what this owner submitted for this group."""
        return self.admin or self.name == owner or group in self.groups

"""Who asks, and what he may."""

from __future__ import annotations

from kernel_backend.model.record import Record


class Person(Record):
    """Somebody whom an identity knows."""

    name: str
    groups: tuple[
        str, ...
    ] = ()  # whose experiments they see; they ask for slots in the first, unless they name another
    admin: bool = False  # sees and changes everything; what they do to others' is written down
    submits: bool = True  # may have things trained

    @property
    def group(self) -> str:
        """In which they ask for slots, unless they say otherwise: a group of their own where they have no other."""
        return self.groups[0] if self.groups else self.name

    def sees(self, owner: str, group: str) -> bool:
        """Whether they may look at what is this owner's, submitted for this group."""
        return self.admin or self.name == owner or group in self.groups

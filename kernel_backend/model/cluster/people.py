"""Describe a user, and decide which experiments they may see."""

from __future__ import annotations

from kernel_backend.model.record import Record


class Person(Record):
    """Authenticated user of the service."""

    name: str
    groups: tuple[
        str, ...
    ] = ()  # the user sees experiments of these groups; the first one is the default for slot requests
    admin: bool = False  # sees and may change everything; actions on others' experiments are logged
    submits: bool = True  # may submit trainings
    monitors: bool = False  # may read the numbers of `/metrics`, as a monitoring system does; admins may anyway

    @property
    def group(self) -> str:
        """Return the user's default group for slot requests: their first group, else one of their own name."""
        return self.groups[0] if self.groups else self.name

    def sees(self, owner: str, group: str) -> bool:
        """Return whether the user may see an experiment: as its owner, as a member of its group, or as an admin."""
        return self.admin or self.name == owner or group in self.groups

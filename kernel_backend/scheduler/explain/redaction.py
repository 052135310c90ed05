"""Redact explanations: hide names, numbers and quotas that a reader may not see.

A reader of None is the owner of the explained request, from whom no other request is hidden.
"""

from __future__ import annotations

from kernel_backend.model.cluster.people import Person
from kernel_backend.scheduler.requests import SlotRequest


def named(request: SlotRequest, reader: Person | None) -> str:
    """Return how messages to a reader name a request: by its number such as `#12.3`, or as "another's training".

    The latter is for a reader who may not see the request.
    """
    return str(request.key) if sees(request, reader) else "another's training"


def sees(request: SlotRequest, reader: Person | None) -> bool:
    """Return whether a reader may see the owner and the number of a request."""
    return reader is None or reader.sees(request.owner, request.group)


def subject(kind: str, request: SlotRequest, reader: Person | None) -> str:
    """Return how a sentence for the reader names a request's owner or group as its subject, such as "you" or "group a".

    `kind` is `user` for the owner, else `group`. Readers other than the owner and admins see "its owner".
    """
    if kind == "group":
        return f"group {request.group}"
    if reader is None or reader.name == request.owner:
        return "you"
    return request.owner if reader.admin else "its owner"


def knows_quota(kind: str, request: SlotRequest, reader: Person | None) -> bool:
    """Return whether a reader may see the quota of the request's owner or group."""
    if reader is None or reader.admin:
        return True
    if kind == "user":
        return reader.name == request.owner
    return request.group in reader.groups or reader.name == request.owner == request.group

"""What of a wait is whose business: who reads its reason learns no name, number or quota that is not theirs to see.

A reader of None is the owner of the ask, who may see all others.
"""

from __future__ import annotations

from kernel_backend.model.cluster.people import Person
from kernel_backend.scheduler.requests import SlotRequest


def named(ask: SlotRequest, reader: Person | None) -> str:
    """An ask to somebody who may not be one to see it: its number, or just that it is another's."""
    return str(ask.key) if sees(ask, reader) else "another's training"


def sees(ask: SlotRequest, reader: Person | None) -> bool:
    """Whether a reader may know whose an ask is, and its number."""
    return reader is None or reader.sees(ask.owner, ask.group)


def subject(kind: str, ask: SlotRequest, reader: Person | None) -> str:
    """Its owner (`kind` user) or its group as the subject of a sentence."""
    if kind == "group":
        return f"group {ask.group}"
    if reader is None or reader.name == ask.owner:
        return "you"
    return ask.owner if reader.admin else "its owner"


def knows_quota(kind: str, ask: SlotRequest, reader: Person | None) -> bool:
    """Whether the numbers of its owner or its group are the reader's business."""
    if reader is None or reader.admin:
        return True
    if kind == "user":
        return reader.name == ask.owner
    return ask.group in reader.groups or reader.name == ask.owner == ask.group

"""Write audit entries for actions on other users' experiments."""

from __future__ import annotations

import asyncio
import time

from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import Experiment
from kernel_backend.store.base import Store


def audit_entry(who: Person, experiment: Experiment, act: str, detail: str = "", on: str = "") -> AuditEntry | None:
    """Return the audit entry for what a user does to another user's experiment; None if the user owns the experiment.

    `act` is a verb such as `stop`; `detail` says more in words. `on` names the changed object, such as a trial, by
    default the experiment itself.
    """
    if who.name == experiment.owner:
        return None
    about = ", ".join(part for part in (detail, f"of {experiment.owner}") if part)
    return AuditEntry(at=time.time(), who=who.name, act=act, on=on or f"#{experiment.number}", detail=about)


async def keep_audit_entry(store: Store, entry: AuditEntry | None) -> None:
    """Store an audit entry; do nothing for None."""
    if entry is not None:
        await asyncio.to_thread(store.write_down, entry)

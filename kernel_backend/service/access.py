"""Control access to experiments.

A user who may not see an experiment gets NotFound, as if it did not exist.
"""

from __future__ import annotations

import asyncio

from kernel_backend.errors import Conflict, Forbidden, NotFound
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import Experiment
from kernel_backend.store.base import Store


async def visible(store: Store, who: Person, number: int) -> Experiment:
    """Return an experiment that the user may see.

    Raises NotFound if it does not exist, if its data was removed after a deletion, or if the user may not see it.
    """
    experiment = await asyncio.to_thread(store.experiment, number)
    if not sees(who, experiment):
        raise NotFound(f"there is no experiment #{number}")
    if experiment.purged_at is not None:
        raise NotFound(f"there is no experiment #{number} any more: it was deleted")
    return experiment


async def changeable(store: Store, who: Person, number: int, deleted: bool = False) -> Experiment:
    """Return an experiment if the user may change it: its owner or an admin.

    Raises NotFound if the user may not see the experiment, Forbidden if they may see but not change it, and Conflict if
    it is deleted, unless `deleted` is set.
    """
    experiment = await visible(store, who, number)
    if not who.admin and who.name != experiment.owner:
        raise Forbidden(f"experiment #{number} is {experiment.owner}'s: you may look at it and not change it")
    if not deleted:
        check_not_deleted(experiment)
    return experiment


def check_not_deleted(experiment: Experiment) -> None:
    """Raise Conflict if the experiment is deleted."""
    if experiment.deleted_at is not None:
        number = experiment.number
        raise Conflict(f"experiment #{number} is deleted: daylight undelete {number} brings it back for a day")


def may_submit(who: Person) -> None:
    """Raise Forbidden unless the user may submit experiments."""
    if not who.submits:
        raise Forbidden(
            f"{who.name} may not have anything trained here: "
            "the hub's admins grant that by a role with the scope custom:daylight:submit"
        )


def may_continue(who: Person, experiment: Experiment) -> None:
    """Raise Forbidden unless the user may have an experiment trained further: who may submit, and for its group."""
    may_submit(who)
    group = experiment.group
    if not who.admin and group not in (*who.groups, who.name):
        raise Forbidden(
            f"experiment #{experiment.number} counts for the group {group}, which you are not in any more: "
            "you may pause, stop and delete it; submit it again for a group of yours to train it further"
        )


def sees(who: Person, experiment: Experiment) -> bool:
    """Return whether the user owns the experiment, is in its group, or is an admin."""
    return who.sees(experiment.owner, experiment.group)

"""Control access to experiments: users who may not see one do not even learn that it exists."""

from __future__ import annotations

import asyncio

from kernel_backend.errors import Forbidden, NotFound
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import Experiment
from kernel_backend.store.base import Store


async def visible(store: Store, who: Person, number: int) -> Experiment:
    """Return the experiment if it is the user's or one of their groups'; raises NotFound."""
    experiment = await asyncio.to_thread(store.experiment, number)
    if sees(who, experiment):
        return experiment
    raise NotFound(f"there is no experiment #{number}")


async def changeable(store: Store, who: Person, number: int) -> Experiment:
    """Return the experiment if it is the user's own; raises NotFound, and Forbidden for one that they may only see."""
    experiment = await visible(store, who, number)
    if who.admin or who.name == experiment.owner:
        return experiment
    raise Forbidden(f"experiment #{number} is {experiment.owner}'s: you may look at it and not change it")


def may_submit(who: Person) -> None:
    """Raise Forbidden unless the user may submit trainings."""
    if not who.submits:
        raise Forbidden(
            f"{who.name} may not have anything trained here: "
            "the hub's admins grant that by a role with the scope custom:daylight:submit"
        )


def sees(who: Person, experiment: Experiment) -> bool:
    """Return whether a user may see an experiment."""
    return who.sees(experiment.owner, experiment.group)

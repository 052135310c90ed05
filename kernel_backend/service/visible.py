"""What a person may see: their own experiments, and of others not even that they exist."""

from __future__ import annotations

import asyncio

from kernel_backend.errors import NotFound
from kernel_backend.model.experiment import Experiment
from kernel_backend.store.base import Store


async def visible(store: Store, who: str, number: int) -> Experiment:
    """The experiment, where it is this person's; raises NotFound."""
    experiment = await asyncio.to_thread(store.experiment, number)
    if experiment.owner != who:
        raise NotFound(f"there is no experiment #{number}")
    return experiment

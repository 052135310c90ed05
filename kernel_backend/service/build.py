"""The composition root of the service: make its parts, and hand each what it needs."""

from __future__ import annotations

from functools import partial

from kernel_backend.service.checkpoint_copies import Beginnings
from kernel_backend.service.context import Context
from kernel_backend.service.environments import Preparation
from kernel_backend.service.loop.ends import Ends
from kernel_backend.service.loop.loop import Loop
from kernel_backend.service.loop.spools import Spools
from kernel_backend.service.loop.starts import Starts
from kernel_backend.service.notebook_servers import Notebooks
from kernel_backend.service.search.custom_process import ExperimentAsker
from kernel_backend.service.search.runner import Searches
from kernel_backend.service.service import Service
from kernel_backend.service.state.cluster_state import Pictures
from kernel_backend.service.state.requests import Asking


def build(context: Context) -> Service:
    """Return the service, which has not been started yet."""
    store, engine, wake = context.store, context.engine, context.wake
    preparation = Preparation(context.archive, context.areas, wake)
    beginnings = Beginnings(context.places, wake)
    asker = partial(ExperimentAsker, archive=context.archive, preparation=preparation, areas=context.areas)
    searches = Searches(store, asker)
    asking = Asking(store, searches, preparation, beginnings)
    pictures = Pictures(store, engine, context.roster, asking, context.rules)
    notebooks = Notebooks(store, context.roster, context.servers, wake)
    ends = Ends(context, searches, Spools(store, engine))
    starts = Starts(context, pictures, asking, searches, preparation, beginnings, ends)
    loop = Loop(context, pictures, searches, notebooks, beginnings, starts, ends)
    return Service(context, loop, preparation)

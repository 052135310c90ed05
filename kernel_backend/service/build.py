"""Build the service: make its parts, and pass each what it needs (the composition root)."""

from __future__ import annotations

from functools import partial

from kernel_backend.service.checkpoint_copies import CheckpointCopies
from kernel_backend.service.context import Context
from kernel_backend.service.environments import Preparation
from kernel_backend.service.loop.ends import AttemptEnder
from kernel_backend.service.loop.loop import Loop
from kernel_backend.service.loop.spools import SpoolIntake
from kernel_backend.service.loop.starts import AttemptStarter
from kernel_backend.service.notebook_servers import Notebooks
from kernel_backend.service.search.custom_process import ExperimentSearchProcess
from kernel_backend.service.search.runner import Searches
from kernel_backend.service.service import Service
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.service.state.requests import RequestBuilder


def build(context: Context) -> Service:
    """Return the service, which has not been started yet."""
    store, engine, wake = context.store, context.engine, context.wake
    preparation = Preparation(context.archive, context.areas, wake)
    beginnings = CheckpointCopies(context.places, wake)
    asker = partial(ExperimentSearchProcess, archive=context.archive, preparation=preparation, areas=context.areas)
    searches = Searches(store, asker)
    asking = RequestBuilder(store, searches, preparation, beginnings)
    pictures = ClusterStateManager(store, engine, context.roster, asking, context.rules)
    notebooks = Notebooks(store, context.roster, context.servers, wake)
    ends = AttemptEnder(context, searches, SpoolIntake(store, engine))
    starts = AttemptStarter(context, pictures, asking, searches, preparation, beginnings, ends)
    loop = Loop(context, pictures, searches, notebooks, beginnings, starts, ends)
    return Service(context, loop, preparation)

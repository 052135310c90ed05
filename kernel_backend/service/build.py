"""Create the service and its parts, and connect them; no other module creates the parts."""

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
from kernel_backend.service.search.followed import FollowedCheckpoints
from kernel_backend.service.search.runner import Searches
from kernel_backend.service.service import Service
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.service.state.requests import RequestBuilder
from kernel_backend.service.state.site_queues import pool_states


def build(context: Context) -> Service:
    """Return a new service with all of its parts, not started yet."""
    store, engines, wake = context.store, context.engines, context.wake
    preparation = Preparation(context.archive, context.workspaces, engines.settings, wake)
    checkpoint_copies = CheckpointCopies(context.checkpoint_storage, wake)
    search_process = partial(
        ExperimentSearchProcess, archive=context.archive, preparation=preparation, workspaces=context.workspaces
    )
    searches = Searches(store, search_process, FollowedCheckpoints(store, context.checkpoint_storage))
    site_loads = context.site_loads
    request_builder = RequestBuilder(
        store, searches, preparation, checkpoint_copies, engines.places, site_loads.newer, context.data_nodes.of
    )
    cluster_state = ClusterStateManager(
        store,
        context.nodes,
        context.stored_quotas,
        request_builder,
        context.rules,
        pool_states=partial(pool_states, engines, site_loads),
    )
    notebooks = Notebooks(store, context.stored_quotas, context.servers, wake)
    ends = AttemptEnder(context, searches, SpoolIntake(store, engines))
    starts = AttemptStarter(context, cluster_state, request_builder, searches, preparation, checkpoint_copies, ends)
    loop = Loop(context, cluster_state, searches, notebooks, checkpoint_copies, starts, ends)
    return Service(context, loop, preparation)

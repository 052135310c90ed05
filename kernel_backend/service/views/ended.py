"""List the experiments of a user that ended recently, for notices in their browser."""

from __future__ import annotations

from kernel_backend.model.states import ExperimentState
from kernel_backend.model.webhooks.payload import sentence
from kernel_backend.model.webhooks.records import EndedExperiment, EndedExperiments
from kernel_backend.store.base import Store

MOST = 20  # experiments


def read_ended(store: Store, owner: str, since: float, at: float) -> EndedExperiments:
    """Return a user's experiments that ended after `since`, and whether any experiment of the user is still active.

    At most the newest `MOST` are returned.
    """
    found = []
    for experiment in reversed(store.ended_since(owner, since, MOST)):
        state, overview = str(experiment.state), store.overview(experiment.number)
        found.append(
            EndedExperiment(
                number=experiment.number,
                name=experiment.name,
                state=state,
                ended_at=experiment.ended_at or at,
                text=sentence(state, overview),
            )
        )
    open_states = (ExperimentState.ACTIVE, ExperimentState.STOPPING)
    active = any(store.experiments(owner, state, limit=1) for state in open_states)
    return EndedExperiments(ended=tuple(found), active=active, at=at)

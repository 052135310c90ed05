"""Choose the action that brings a trial to its experiment's desired state, from the present states alone.

No record of past events is needed for that, so that a missed event does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kernel_backend.model import events as e
from kernel_backend.model.states import EXPERIMENT_ENDED, TRIAL_ENDED, ExperimentState, Hold, TrialState
from kernel_backend.model.trial import ScheduledTrial


class Action(NamedTuple):
    """Action on a trial: an event that changes its state (None if there is none), and new values of other fields.

    The other fields include its holds: the reasons why it must not run, such as a pause by the user.
    """

    event: e.Event | None
    changes: dict[str, Any]


def reconcile(wanted: ExperimentState, trial: ScheduledTrial, feasible: bool, misplaced: bool = False) -> Action | None:
    """Return the next action that takes `trial` towards its experiment's desired state `wanted`; None if none.

    `feasible` says whether a gang of the trial's size could ever be placed, `misplaced` whether its gang runs in a pool
    from which the experiment was moved.
    """
    if trial.state in TRIAL_ENDED:
        return None
    if wanted is ExperimentState.STOPPING:
        return None if trial.state is TrialState.STOPPING else Action(e.Stop(), {})
    holds = _holds(wanted, trial, feasible)
    changes: dict[str, Any] = {"holds": holds} if holds != trial.holds else {}
    if Hold.USER in trial.holds - holds and (trial.excluded or trial.failures):
        # A user who resumes has fixed the problem.
        changes |= {"excluded": frozenset(), "failures": 0, "failure": None}
    event: e.Event | None = None
    if trial.state is TrialState.QUEUED and holds:
        event = e.Held()
    elif trial.state is TrialState.PAUSED and not holds:
        event = e.Lifted()
    elif trial.state in (TrialState.STARTING, TrialState.RUNNING) and (holds or misplaced):
        event = e.Release()
    return Action(event, changes) if event or changes else None


def _holds(wanted: ExperimentState, trial: ScheduledTrial, feasible: bool) -> frozenset[Hold]:
    holds = trial.holds - {Hold.USER}
    if wanted is ExperimentState.PAUSED:
        holds |= {Hold.USER}
    if feasible:
        return holds - {Hold.ENGINE}
    # A running gang is feasible, even if the nodes have changed since.
    return holds | {Hold.ENGINE} if trial.state in (TrialState.QUEUED, TrialState.PAUSED) else holds


def terminal_event(
    wanted: ExperimentState, counts: Mapping[TrialState, int], over: bool | None = None, failed: bool = False
) -> e.Event | None:
    """Return the event that ends an experiment whose trials have all ended; None if none is due.

    `counts` has the number of trials by state. `over` is None without a search; for a search it says whether no more
    trials are started. Paused trials may then stay paused, so that the search can be extended. A search that has
    `failed` ends as failed, whatever its trials' states.
    """
    states = {state for state, count in counts.items() if count}
    if wanted in EXPERIMENT_ENDED:
        return None
    if wanted is ExperimentState.STOPPING:
        return e.Ended() if states <= TRIAL_ENDED and (states or over is not None) else None
    inactive = TRIAL_ENDED | {TrialState.PAUSED} if over else TRIAL_ENDED
    if over is False or not states <= inactive or not (states or over):
        return None
    return e.Failed() if failed or states <= {TrialState.FAILED} else e.Completed()

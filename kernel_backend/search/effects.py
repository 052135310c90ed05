"""Convert a search's decisions to changes of stored trials."""

from __future__ import annotations

from kernel_backend.model import events as e
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.search.effects import Added, Effect, Moved
from kernel_backend.model.search.records import Complete, Continue, Create, Decision, Pause, Prune, Resume
from kernel_backend.model.states import TRIAL_ENDED, Hold, TrialState
from kernel_backend.model.trial import Trial


def created(experiment: Experiment, decision: Create, parent: Trial | None) -> Added:
    """Return the creation of the trial that a decision requires.

    The trial has the submission's fixed hyperparameters and those that `decision` sets. It starts from the newest
    checkpoint of its parent, or else from that of the decision or the experiment's warm-start checkpoint, if any.
    """
    begins_from = decision.begins_from or experiment.begins_from
    if parent is not None and parent.checkpoint is not None:
        begins_from = f"{parent.id}/{parent.checkpoint}"
    params = experiment.params | decision.params
    return Added(decision.trial, params, until=decision.until, begins_from=begins_from)


def effect(decision: Decision | None, trial: Trial) -> Effect | None:
    """Return the change of an existing trial that a search's decision requires; None if it changes nothing.

    A trial can be resumed even while it is releasing its slots, or after it paused because no decision came in time.
    """
    if trial.state in TRIAL_ENDED:
        return None
    match decision:
        case Resume() | Continue():
            return _going(trial, decision.until)
        case Pause():
            return held(trial)
        case Prune() if trial.state is not TrialState.STOPPING:
            return Moved(trial.index, e.Prune(), {"holds": trial.holds | {Hold.SEARCH}})
        case None | Prune() | Complete():
            return None
        case Create():
            raise ValueError(f"trial {trial.id} is there already")


def _going(trial: Trial, until: int) -> Moved | None:
    holds = trial.holds - {Hold.SEARCH}
    if holds == trial.holds and until == trial.until:
        return None
    lifted = trial.state is TrialState.PAUSED and not holds
    return Moved(trial.index, e.Lifted() if lifted else None, {"holds": holds, "until": until})


def held(trial: Trial) -> Moved | None:
    """Return the effect that pauses a trial until its search resumes it.

    None if the search has paused the trial already, or if the trial is stopping or has ended.
    """
    if trial.state in TRIAL_ENDED or trial.state is TrialState.STOPPING or Hold.SEARCH in trial.holds:
        return None
    leaving: dict[TrialState, e.Event] = {
        TrialState.QUEUED: e.Held(),
        TrialState.STARTING: e.Release(),
        TrialState.RUNNING: e.Release(),
    }
    return Moved(trial.index, leaving.get(trial.state), {"holds": trial.holds | {Hold.SEARCH}})

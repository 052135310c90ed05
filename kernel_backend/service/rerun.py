"""What is submitted when an experiment, or one trial of it, is trained again."""

from __future__ import annotations

from pydantic import ValidationError

from kernel_backend.errors import Forbidden, InvalidRequest
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.diff import Rerun
from kernel_backend.model.experiment import Experiment, Submission
from kernel_backend.model.record import checked, problem_text
from kernel_backend.model.search.space import Space
from kernel_backend.model.trial import Trial


def as_requested_by(who: Person, before: Experiment, asked: Rerun) -> Experiment:
    """The same, for the first group of whoever trains it again where they are not in the one it was for.

    Another's code runs as whoever asks, with all that they may: raises Forbidden unless they say whom they trust.
    """
    if asked.trust != before.owner != who.name:
        raise Forbidden(
            f"experiment #{before.number} is {before.owner}'s, and its code would run as you: look at it with "
            f"daylight source {before.number}, and if you trust it, add --trust {before.owner}"
        )
    if before.config.group in (None, who.name, *who.groups):
        return before
    return before.model_copy(update={"config": before.config.model_copy(update={"group": None})})


def single_trial(before: Experiment, trial: Trial, asked: Rerun) -> Submission:
    """One trial of a search as an experiment of its own, with its hyperparameters and nothing to search."""
    if before.config.search is None:
        return rerun_submission(before, asked)
    if "search" in asked.config:
        raise InvalidRequest(f"{trial.id} is one trial: leave out the options of a search, or rerun {before.number}")
    one = {"space": Space(), "config": before.config.model_copy(update={"search": None})}
    named = {"params": trial.params | asked.params, "name": asked.name or f"rerun of #{trial.id}"}
    return rerun_submission(before.model_copy(update=one), asked.model_copy(update=named))


def rerun_submission(before: Experiment, asked: Rerun) -> Submission:
    """The same snapshot with its configuration, but for what is asked; raises InvalidRequest for what is no option."""
    try:
        config = asked.applied(before.config)
    except ValidationError as error:
        raise InvalidRequest(f"this is no configuration: {problem_text(error)}") from None
    # What was searched and is given now is searched no more; where nothing is left of the search there is one training.
    space = before.space.given(asked.params)
    if before.space.parameters and not space.parameters:
        config = config.model_copy(update={"search": None})
    params = {**before.params, **asked.params}
    return checked(
        Submission,
        snapshot=before.snapshot,
        config=config,
        params={name: value for name, value in params.items() if name not in space.names},
        space=space,
        name=asked.name or f"rerun of #{before.number}",
        python=asked.python or before.python,
        cwd=asked.cwd or before.cwd,
        notebook=before.notebook,
        rerun_of=before.number,
    )

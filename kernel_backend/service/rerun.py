"""Build the submission that reruns an experiment, or one trial of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import ValidationError

from kernel_backend.errors import Forbidden, InvalidRequest, NotFound
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.diff import Rerun
from kernel_backend.model.experiment import Experiment, Submission
from kernel_backend.model.record import checked, problem_text
from kernel_backend.model.search.space import Space
from kernel_backend.model.trial import Trial
from kernel_backend.model.views.overview import CheckpointInfo
from kernel_backend.service.run_name import changes, named


def as_requested_by(who: Person, before: Experiment, asked: Rerun) -> Experiment:
    """Return the experiment `before` with the changes that let user `who` rerun it.

    Its group is removed if the user is not in that group, so that the user's default group applies. Raises Forbidden
    for another user's experiment unless the field `trust` of the request names its owner, because its code would run
    with the caller's permissions.
    """
    if asked.trust != before.owner != who.name:
        raise Forbidden(
            f"experiment #{before.number} is {before.owner}'s, and its code would run as you: look at it with "
            f"daylight source {before.number}, and if you trust it, add --trust {before.owner}"
        )
    if before.config.group in (None, who.name, *who.groups):
        return before
    return before.model_copy(update={"config": before.config.model_copy(update={"group": None})})


def single_trial(before: Experiment, trial: Trial, asked: Rerun, base: str | None = None) -> Submission:
    """Return the submission that reruns one trial of the search `before` by itself, with that trial's hyperparameters.

    `base` is the first part of its name, by default `rerun of #12.3`.
    Raises InvalidRequest for options of a search, and for unknown options.
    """
    if before.config.search is None:
        return rerun_submission(before, asked, base)
    if "search" in asked.config:
        raise InvalidRequest(f"{trial.id} is one trial: leave out the options of a search, or rerun {before.number}")
    alone = before.config.model_copy(update={"search": None})
    one = {"space": Space(), "config": alone, "params": before.params | trial.params}
    return rerun_submission(before.model_copy(update=one), asked, base or f"rerun of #{trial.id}")


def choose_checkpoint(before: Experiment, asked: Rerun, listed: Sequence[CheckpointInfo]) -> CheckpointInfo:
    """Return the checkpoint that a request to continue training names, from an experiment's checkpoints in `listed`.

    It may be named as `newest`, `best`, a step or an id. Raises InvalidRequest for a search without a trial number, and
    NotFound if there is no such checkpoint.
    """
    if before.config.search is not None and asked.trial is None:
        raise InvalidRequest(f"#{before.number} is a search: name the trial to train on, such as {before.number}.1")
    own = sorted((each for each in listed if each.trial == (asked.trial or 1)), key=lambda each: each.order)
    if not own:
        raise NotFound(f"experiment #{before.number} has no checkpoint to train on from")
    wanted, metric = asked.checkpoint, before.config.metric
    if wanted == "newest":
        return own[-1]
    if wanted == "best":
        judged = [each for each in own if math.isfinite(metric.cost(each.metrics))]
        return min(judged, key=lambda each: metric.cost(each.metrics), default=own[-1])
    found = next((each for each in reversed(own) if wanted in (each.id, str(each.step))), None)
    if found is None:
        there_are = ", ".join(str(each.step) for each in own)
        raise NotFound(f"#{before.number} has no checkpoint {wanted}: write newest, best, or one of steps {there_are}")
    return found


def continuation(before: Experiment, trial: Trial, asked: Rerun, found: CheckpointInfo) -> Submission:
    """Return the submission that continues a trial from the checkpoint `found`, up to the length in the request.

    `before` is the trial's experiment. Raises InvalidRequest if the checkpoint has reached that length already.
    """
    submission = single_trial(before, trial, asked, f"#{trial.id} continued")
    config = submission.config
    unit, length = ("epochs", config.epochs) if config.steps is None else ("steps", config.steps)
    done = found.epoch if unit == "epochs" else found.step
    if done >= length:
        raise InvalidRequest(
            f"checkpoint {found.id} of #{trial.id} has {done:g} {unit} behind it, and --{unit} {length} counts them, "
            f"too: give more, such as --{unit} {2 * math.ceil(done)}"
        )
    return submission


def rerun_submission(before: Experiment, asked: Rerun, base: str | None = None) -> Submission:
    """Return the submission that trains the snapshot of the experiment `before` again, with the requested changes.

    Without a name, it is called by `base`, by default `rerun of #12`, and by these changes. Raises InvalidRequest
    for an unknown option.
    """
    try:
        config = asked.applied(before.config)
    except ValidationError as error:
        raise InvalidRequest(f"this is no configuration: {problem_text(error)}") from None
    # A searched parameter that was assigned a value is not searched; if none is left, it is a single training.
    space = before.space.given(asked.params)
    if before.space.parameters and not space.parameters:
        config = config.model_copy(update={"search": None})
    params = {**before.params, **asked.params}
    submission = checked(
        Submission,
        snapshot=before.snapshot,
        config=config,
        params={name: value for name, value in params.items() if name not in space.names},
        space=space,
        name=asked.name,
        python=asked.python or before.python,
        cwd=asked.cwd or before.cwd,
        notebook=before.notebook,
        rerun_of=before.number,
        note=asked.note,
        tags=asked.tags,
    )
    name = asked.name or named(base or f"rerun of #{before.number}", changes(before, submission))
    return submission.model_copy(update={"name": name})

"""Wait for a running training before its weights are loaded, or print that the weights are not final."""

from __future__ import annotations

import time
from collections.abc import Iterator

from kernel_backend.client import Client
from kernel_backend.commands.follow import follow
from kernel_backend.model.states import TRIAL_ENDED, ExperimentState
from kernel_backend.model.trial import Trial
from kernel_backend.model.views.overview import Overview
from kernel_backend.text import place_text, state_word
from kernel_backend.text.terminal import tell

_AGAIN_S = 30.0  # between lines that are printed during the wait
_GOES_ON = (ExperimentState.ACTIVE, ExperimentState.STOPPING)


def until_trained(client: Client, overview: Overview, trial: int | None) -> None:
    """Wait until the experiment, or one `trial` of its search, has stopped training.

    Prints why it waits, and how far training got if it has not completed. An interrupt ends only the waiting.
    """
    said, told = "", 0.0
    try:
        for now in until_it_stops(client, overview, trial):
            overview = now
            line = f"{waiting_line(overview, trial)}; interrupt to take what is there"
            if goes_on(overview, trial) and line != said and (not said or time.monotonic() - told >= _AGAIN_S):
                tell(line)
                said, told = line, time.monotonic()
    except KeyboardInterrupt:
        tell(f"taken while it trains: {_how_far(overview, trial)}")
        return
    _tell_unfinished(overview)


def until_it_stops(client: Client, overview: Overview, trial: int | None = None) -> Iterator[Overview]:
    """Yield the state of an experiment about once a second until it, or one `trial` of its search, trains no more.

    The last state is yielded, too.
    """
    if not goes_on(overview, trial):
        yield overview
        return
    for look in follow(client, overview):
        yield look.overview
        if not goes_on(look.overview, trial):
            return


def waiting_line(overview: Overview, trial: int | None = None) -> str:
    """Return a line that says what is waited for, such as `waiting for #127, epoch 3/8`, and why it does not train."""
    why = f" ({overview.wait.reason})" if overview.wait else ""
    return f"waiting for {_how_far(overview, trial)}{why}"


def goes_on(overview: Overview, trial: int | None = None) -> bool:
    """Return True while an experiment, or one `trial` of its search, trains or waits for slots."""
    if trial is not None and any(each.index == trial and each.state in TRIAL_ENDED for each in overview.trials):
        return False
    return overview.experiment.state in _GOES_ON


def _tell_unfinished(overview: Overview) -> None:
    if overview.experiment.state not in (*_GOES_ON, ExperimentState.COMPLETED):
        tell(f"{overview.experiment.state}: {_how_far(overview, None)}; these are the weights of then")


def _how_far(overview: Overview, trial: int | None) -> str:
    """Return the progress of a training as text, such as `#127, epoch 3/8`."""
    name = f"#{overview.experiment.number}" + (f".{trial}" if trial is not None else "")
    front = _trial(overview, trial)
    if front is None or front.step == 0:
        return f"{name}, {state_word(overview)}"
    config = overview.experiment.config
    return f"{name}, " + (f"step {front.step}/{config.steps}" if config.steps else place_text(front, config))


def _trial(overview: Overview, index: int | None) -> Trial | None:
    return next((each for each in overview.trials if each.index == index), None) if index else overview.front

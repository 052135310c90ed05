"""Raise an error if an experiment failed."""

from __future__ import annotations

from kernel_backend.errors import ExperimentFailed
from kernel_backend.model.views.overview import Overview
from kernel_backend.text import failure_text


def raise_if_failed(overview: Overview) -> None:
    """Raise ExperimentFailed, with the cause, if an experiment failed, or is paused until the user fixes something."""
    number = overview.experiment.number
    if overview.stuck is not None:
        text = f"experiment #{number} is paused: {overview.stuck.message}; then: %dl resume {number}"
        raise ExperimentFailed(text, number=number)
    if overview.state != "failed":
        return
    failures = [failure_text(trial.failure) for trial in overview.trials if trial.failure]
    failures += [*overview.warnings[-1:], "no rank said why"]  # the last warning is that of a search that failed itself
    raise ExperimentFailed(
        f"experiment #{number} failed: {failures[0]}\nwhat its ranks printed: %dl logs {number}",
        number=number,
    )

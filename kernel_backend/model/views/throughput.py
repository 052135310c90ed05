"""Estimate how fast a job goes, and how long it still takes, from when its ranks reported which step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kernel_backend.model.states import TrialState
from kernel_backend.model.views.curves import Curve
from kernel_backend.model.views.overview import Overview

_LATELY_S, _LATELY_PART = 60.0, 0.25  # the speed is measured over at least this time, and this part of the attempt


class Throughput(NamedTuple):
    """Steps a second, and the seconds until the last one."""

    per_second: float
    left: float


def throughput_of(overview: Overview, curves: Sequence[Curve], now: float) -> Throughput | None:
    """Return the throughput of a running trial of late; None for others, and if its attempt has reported too little."""
    trial = overview.front
    if trial is None or trial.state is not TrialState.RUNNING or not (trial.total_steps and curves):
        return None
    begun = max((each.created_at for each in overview.attempts if each.trial == trial.index), default=0.0)
    marks = [(at, step) for at, step in zip(curves[0].at, curves[0].step, strict=True) if at >= begun]
    if not marks:
        return None
    (first, _), (newest, step) = marks[0], marks[-1]
    since = newest - max(_LATELY_S, _LATELY_PART * (newest - first))
    at, before = ([mark for mark in marks if mark[0] <= since] or marks)[-1 if first <= since else 0]
    if newest <= at or step <= before:
        return None
    per_second = (step - before) / (newest - at)
    return Throughput(per_second, max(0.0, (trial.total_steps - step) / per_second - (now - newest)))

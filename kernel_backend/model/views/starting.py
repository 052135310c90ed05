"""Say what a training does between getting its slots and its first report."""

from __future__ import annotations

from typing import NamedTuple

from kernel_backend.model.launch.progress import OF_START, Phase
from kernel_backend.model.states import TrialState
from kernel_backend.model.views.overview import Overview

LONG_S = 60.0  # a longer phase is worth a look at the log
_BEFORE = "copying files, starting processes"  # nothing was heard of the ranks yet


class StartPhase(NamedTuple):
    """Phase of a start in which rank 0 of an attempt is, and since when, in seconds since the epoch."""

    phase: Phase
    since: float
    text: str = ""  # what it does in this phase; "" if the phase says it


def duration(seconds: float) -> str:
    """Format a duration: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 07 min` or `1 d 03 h`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def counted(count: int, word: str) -> str:
    """Format a number with its noun: `1 slot`, `2 slots`."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def starting_text(overview: Overview, told: StartPhase | None, now: float) -> str:
    """Format what a training that has slots does before its first report; "" for others, and for a search.

    Example: `preparing 2 slots: importing torch (12 s)`. `told` is what its launcher has said of its newest attempt;
    None: nothing yet.
    """
    if overview.experiment.config.search is not None or not overview.attempts:
        return ""
    attempt, config = overview.attempts[-1], overview.experiment.config
    if overview.state == TrialState.STARTING:
        if told and told.text:
            return told.text
        words = OF_START.get(told.phase, _BEFORE) if told else _BEFORE
        since = told.since if told else attempt.granted_at or attempt.created_at
        return f"preparing {counted(attempt.slots, 'slot')}: {_lasting(words, now - since)}"
    if overview.state != TrialState.RUNNING:
        return ""
    if told and told.text:  # its data still arrives
        return told.text
    if config.as_it_is:  # what its own process does before it reports is unknown
        begun = all(trial.step == 0 and not trial.newest[1] for trial in overview.trials)
        return f"the {'command' if config.form == 'command' else 'cell'} has started" if begun else ""
    return _lasting(OF_START[told.phase], now - told.since) if told and told.phase in OF_START else ""


def _lasting(words: str, seconds: float) -> str:
    advice = "; longer than usual: look at the log" if seconds > LONG_S else ""
    taken = duration(seconds) if seconds >= 60 else f"{max(seconds, 0.0):.0f} s"
    return f"{words} ({taken}){advice}"

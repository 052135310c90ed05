"""Show an experiment after its submission, as a static card, a live card or plain log lines."""

from __future__ import annotations

import time
from collections.abc import Sequence

from jupyter_ext.job.outcome import raise_if_failed
from jupyter_ext.views import LiveView
from kernel_backend.client import Client
from kernel_backend.commands.follow import follow
from kernel_backend.model.views.overview import Overview
from kernel_backend.text import duration, head_text, progress_line, state_word
from kernel_backend.text.terminal import tell

QUIET_S = 30.0  # a plain log prints a line at least this often


def show(client: Client, overview: Overview, captured: Sequence[str], *, widget: bool = False) -> None:
    """Show the current state of the experiment as a card or, with `widget`, as a widget.

    `captured` are sentences about the submission.
    """
    LiveView(client, captured, widget=widget).show(overview, final=True)


def wait(
    client: Client, overview: Overview, captured: Sequence[str], *, plain: bool, quiet: bool, widget: bool = False
) -> Overview | None:
    """Show progress until the experiment has ended, and return it; None after an interrupt. Raises ExperimentFailed.

    `captured` are sentences about the submission. `plain` prints lines, for frontends without a live card; `quiet`
    prints nothing. With `widget`, a widget is shown in place of the card.
    """
    number = overview.experiment.number
    try:
        if quiet:
            *_, last = follow(client, overview)
            overview = last.overview
        elif plain:
            overview = _plainly(client, overview, captured)
        else:
            overview = _drawing(client, overview, LiveView(client, captured, widget=widget))
    except KeyboardInterrupt:
        tell(f"#{number} continues in the background; %dl stop {number} ends it")
        return None
    raise_if_failed(overview)
    return overview


def _plainly(client: Client, overview: Overview, captured: Sequence[str]) -> Overview:
    notes = [f"note: {text}" for text in overview.warnings]
    tell("\n".join([head_text(overview, time.time()), *captured, *notes]))
    said = time.monotonic()
    for look in follow(client, overview):
        overview, lines = look.overview, look.lines
        if not lines and time.monotonic() - said >= QUIET_S:
            lines = [_still(overview)]
        if lines:
            tell("\n".join(lines))
            said = time.monotonic()
    LiveView(client).show(overview, final=True)  # how it ended; what is above stands there already
    return overview


def _still(overview: Overview) -> str:
    age = duration(time.time() - overview.experiment.created_at)
    progress = f"{progress_line(overview.front, overview.experiment.config)}  " if overview.front else ""
    return f"{progress}{overview.starting or f'{state_word(overview)} for {age}'}"


def _drawing(client: Client, overview: Overview, view: LiveView) -> Overview:
    for look in follow(client, overview):
        overview = look.overview
        view.show(overview)
    view.show(overview, final=True)
    return overview

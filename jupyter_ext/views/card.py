"""Render an experiment as a MIME bundle: JSON for the live view, PNG, HTML card and plain text."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import Any

from jupyter_ext.views.saved_state import MIME_TYPE, SavedSearch, saved_json
from jupyter_ext.views.tables import rows_html
from kernel_backend.model.trial import Failure, Trial
from kernel_backend.model.views.curves import Curves
from kernel_backend.model.views.overview import Overview
from kernel_backend.printable import harmless
from kernel_backend.text import (
    attempt_lines,
    duration,
    elapsed,
    failure_text,
    gang_text,
    guarantee_text,
    head_text,
    kind_text,
    number,
    params_text,
    progress_line,
    reference,
    result_text,
    search_text,
    state_text,
    without_values,
)
from kernel_backend.text.labels import label_lines
from kernel_backend.text.next_steps import next_text

# The notebook's theme colours if it has them (JupyterLab, VS Code), else colours for light and dark themes.
_TEXT = "var(--jp-content-font-color1, var(--vscode-foreground, inherit))"
_DIM = "var(--jp-content-font-color2, var(--vscode-descriptionForeground, #777))"
_LINE = "var(--jp-border-color2, var(--vscode-panel-border, #8884))"
_CODE = "var(--jp-code-font-family, monospace)"
_COLOURS = {
    "completed": "var(--jp-success-color1, #388e3c)",
    "failed": "var(--jp-error-color1, #d32f2f)",
    "running": "var(--jp-brand-color1, #1976d2)",
    "starting": "var(--jp-brand-color1, #1976d2)",
    "releasing": "var(--jp-warn-color1, #f57c00)",
    "stopping": "var(--jp-warn-color1, #f57c00)",
    "paused": "var(--jp-warn-color1, #f57c00)",
}
_GREY = "var(--jp-layout-color4, #757575)"
_CARD = (
    f"font-family:var(--jp-content-font-family, sans-serif);color:{_TEXT};border:1px solid {_LINE};"
    "border-radius:6px;padding:10px 14px;max-width:760px;line-height:1.5"
)


def bundle(
    overview: Overview,
    now: float,
    captured: Sequence[str] = (),
    picture: bytes | None = None,
    curves: Curves | None = None,
    search: SavedSearch | None = None,
) -> dict[str, Any]:
    """Return the MIME bundle of an experiment: MIME_TYPE (JSON), `text/html`, `text/plain`, and optionally `image/png`.

    `picture` is a PNG (base64 in the bundle). `now` is in seconds since the epoch; `captured` are sentences about the
    submission; `curves` and the status of a `search` are downsampled for a notebook.
    """
    found: dict[str, Any] = {
        MIME_TYPE: saved_json(overview, now, captured, curves, search),
        "text/html": html(overview, now, captured, picture),
        "text/plain": harmless(plain(overview, now, captured)),
    }
    if picture is not None:
        found["image/png"] = base64.b64encode(picture).decode()
    return found


def plain(overview: Overview, now: float, captured: Sequence[str] = ()) -> str:
    """Return the experiment as a few lines of plain text, for outputs without HTML.

    `now` is in seconds since the epoch, and `captured` are sentences about the submission.
    """
    lines = [
        head_text(overview, now),
        *label_lines(overview.experiment),
        *captured,
        *_hint(overview, captured),
        *_facts(overview),
    ]
    for trial in _told(overview):
        if trial.step:
            shown = without_values(trial) if overview.experiment.config.search else trial
            lines.append(progress_line(shown, overview.experiment.config))
        if trial.failure and trial.state == "failed":
            lines.append(failure_text(trial.failure))
    lines += [f"note: {text}" for text in overview.warnings]
    return "\n".join(lines)


def html(overview: Overview, now: float, captured: Sequence[str] = (), picture: bytes | None = None) -> str:
    """Return the experiment as an HTML card without scripts; all text from users is escaped.

    `now` is in seconds since the epoch, `captured` are sentences about the submission, and `picture` is a PNG.
    """
    said = [*label_lines(overview.experiment), *captured, *_hint(overview, captured)]
    parts = [_head(overview, now), *map(_dim, said)]
    if overview.experiment.params:
        parts.append(_dim(params_text(overview.experiment.params)))
    parts += [_dim(text) for text in _facts(overview)]
    for trial in _told(overview):
        parts.append(_progress(trial, overview))
        if trial.failure and trial.state == "failed":
            parts.append(_failure(trial.failure))
    parts += [
        _dim(text if text in overview.informational else f"\N{WARNING SIGN} {text}") for text in overview.warnings
    ]
    if picture is not None:
        parts.append(_picture(picture, overview))
    return f'<div style="{_CARD}">{"".join(parts)}</div>'


def _told(overview: Overview) -> Sequence[Trial]:
    """Return the trials that the card shows: all trials, but for a search only the best one.

    If a search has failed, it is the newest failed trial instead.
    """
    if overview.experiment.config.search is None:
        return overview.trials
    failed = [trial for trial in overview.trials if trial.state == "failed"][-1:] if overview.state == "failed" else []
    return failed or ([overview.front] if overview.front else [])


def _facts(overview: Overview) -> list[str]:
    """Return lines about an experiment: its result, reproducibility guarantee, next steps, and events of attempts.

    Events are shown only for a single trial.
    """
    reached = search_text(overview) if overview.experiment.config.search else result_text(overview)
    said = [reached, guarantee_text(overview), next_text(overview, "%dl")]
    befell = [] if overview.experiment.config.search else attempt_lines(overview)
    return [line for line in (*said, *befell) if line]


def _hint(overview: Overview, captured: Sequence[str]) -> list[str]:
    """Return a line that names the next commands, if the experiment was just submitted and has not ended.

    Otherwise the list is empty. `captured` are sentences about the submission, which are given only for a new
    experiment.
    """
    number = overview.experiment.number
    goes_on = not overview.ended
    return [f"%dl show {number} looks again, %dl stop {number} ends it"] if captured and goes_on else []


def _head(overview: Overview, now: float) -> str:
    experiment = overview.experiment
    colour = _COLOURS.get(overview.state, _GREY)
    chip = (
        f'<span style="background:{colour};color:#fff;border-radius:10px;padding:1px 9px;font-size:90%">'
        f"{escape(state_text(overview))}</span>"
    )
    facts = f"{gang_text(overview)} \N{MIDDLE DOT} {duration(elapsed(overview, now))}"
    return (
        f"<div><b>#{experiment.number} {escape(experiment.name)}</b>&ensp;{chip}&ensp;"
        f'<span style="color:{_DIM}">{escape(facts)}</span></div>'
    )


def _progress(trial: Trial, overview: Overview) -> str:
    config = overview.experiment.config
    kind, newest = trial.newest
    rows = [(name, number(value)) for name, value in newest.items()]
    head = kind_text(kind, config) if config.uses_model else f"newest {kind}"
    table = rows_html((head, ""), rows) if rows else ""
    if config.as_it_is:
        return table
    line = progress_line(without_values(trial), config)
    bar = "" if config.known_epochs is None else _bar(trial, config.known_epochs)
    return f"{bar}{_dim(line.removeprefix(reference(trial)).strip())}{table}"


def _bar(trial: Trial, epochs: int) -> str:
    share = f"{min(1.0, trial.epoch / epochs) * 100:.0f}"
    colour = _COLOURS.get(trial.state, _GREY)
    shape = "border-radius:3px;height:5px"
    return (
        f'<div role="progressbar" aria-valuenow="{share}" aria-valuemin="0" aria-valuemax="100" '
        f'style="{shape};background:{_LINE};margin:6px 0">'
        f'<div style="{shape};background:{colour};width:{share}%"></div></div>'
    )


def _failure(failure: Failure) -> str:
    style = (
        f"border-left:3px solid {_COLOURS['failed']};padding:4px 10px;margin:6px 0;white-space:pre-wrap;"
        f"font-family:{_CODE};font-size:90%;background:transparent;color:{_TEXT}"
    )
    return f'<pre style="{style}">{escape(failure_text(failure))}</pre>'


def _picture(picture: bytes, overview: Overview) -> str:
    data = base64.b64encode(picture).decode()
    values = ", ".join(f"{k} {number(v)}" for trial in _told(overview) for k, v in trial.metrics.items())
    said = f"curves of experiment {overview.experiment.number}" + (f": {values}" if values else "")
    return (
        f'<img src="data:image/png;base64,{data}" style="max-width:100%;margin-top:6px;border-radius:4px" '
        f'alt="{escape(said, quote=True)}">'
    )


def _dim(text: str) -> str:
    return f'<div style="color:{_DIM};font-size:92%;white-space:pre-wrap">{escape(text)}</div>'

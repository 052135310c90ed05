"""Make the rows of the table of experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_backend.model.record import Value
from kernel_backend.model.views.experiment_row import ExperimentRow, ExperimentTable
from kernel_backend.model.views.overview import Overview
from kernel_backend.text import elapsed, result_text, state_text
from kernel_backend.text.dates import started_at


def experiment_table(overviews: Sequence[Overview], after: int, now: float) -> ExperimentTable:
    """Return a page of the table; `after` is the message since which its experiments have changed."""
    seq = min((each.seq for each in overviews), default=after)
    return ExperimentTable(rows=tuple(experiment_row(each, now) for each in overviews), seq=seq)


def experiment_row(overview: Overview, now: float) -> ExperimentRow:
    """Return an experiment's row in the table of experiments."""
    experiment, trial = overview.experiment, overview.front
    found: Mapping[str, Value] = trial.params if trial and experiment.config.search else {}
    return ExperimentRow(
        number=experiment.number,
        name=experiment.name,
        state=overview.state,
        standing=state_text(overview),
        result=result_text(overview),
        created_at=experiment.created_at,
        started_at=started_at(overview),
        seconds=max(0.0, elapsed(overview, now)),
        tags=experiment.tags,
        notebook=experiment.notebook,
        params={**experiment.params, **found},
        metric=experiment.config.metric,
        best=trial.best.value if trial and trial.best else None,
        metrics=trial.metrics if trial else {},
    )

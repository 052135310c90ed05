"""Format reports, trials and lists of experiments as CSV that is safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from kernel_backend.model.cluster.accounting import Spending, SpendingReport
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.search_status import TrialRow

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # texts that a spreadsheet would evaluate begin so
_LISTED = ("number", "name", "state", "owner", "group", "tags", "note", "slots", "epochs", "created_at", "ended_at")


def metrics_csv(reports: Sequence[StoredReport]) -> str:
    """Return CSV with a row per report: kind, step, epoch, seconds since the epoch, and a column per metric."""
    names = list(dict.fromkeys(name for report in reports for name in report.metrics))
    rows = ([each.kind, each.step, each.epoch, each.at, *map(each.metrics.get, names)] for each in reports)
    return _csv(["kind", "step", "epoch", "at", *names], rows)


def trials_csv(trials: Sequence[TrialRow]) -> str:
    """Return CSV with a row per trial of a search: state, progress, values, and a column per hyperparameter."""
    params = list(dict.fromkeys(name for trial in trials for name in trial.params))
    fields = [name for name in TrialRow.model_fields if name != "params"]
    rows = ([*(getattr(each, name) for name in fields), *map(each.params.get, params)] for each in trials)
    return _csv([*fields, *(f"param {name}" if name in fields else name for name in params)], rows)


def experiments_csv(found: Sequence[Overview]) -> str:
    """Return CSV with a row per experiment: labels, state, and the newest metrics of its only or best trial."""
    newest = [each.front.newest[1] if each.front else {} for each in found]
    names = list(dict.fromkeys(name for metrics in newest for name in metrics))
    rows = (
        [*(_field(each, name) for name in _LISTED), *map(metrics.get, names)]
        for each, metrics in zip(found, newest, strict=True)
    )
    return _csv([*_LISTED, *names], rows)


def spending_csv(report: SpendingReport) -> str:
    """Return CSV with a row for each user, group, month or experiment of a report on slot-hours, energy and cost.

    Unknown values are empty.
    """
    fields = [name for name in Spending.model_fields if name != "name"]
    rows = ([row.name, *(getattr(row, name) for name in fields)] for row in report.rows)
    return _csv([report.by, *fields], rows)


def _field(overview: Overview, name: str) -> Any:
    experiment = overview.experiment
    if name in ("slots", "epochs"):
        return getattr(experiment.config, name)
    return overview.state if name == "state" else getattr(experiment, name)


def _csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(name) for name in head])
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Return a value for a CSV cell; a text that a spreadsheet would evaluate gets the prefix `'`."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        value = " ".join(value)
    if isinstance(value, list | dict | tuple):
        value = json.dumps(value)
    if isinstance(value, int | float) and not isinstance(value, str):
        return value
    return f"'{value}" if str(value).startswith(_FORMULA) else str(value)

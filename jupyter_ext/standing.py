"""A search's trials as lines, tables and a DataFrame: the same in the notebook and on the command line."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import parse_duration, parse_slot_time
from kernel_backend.model.record import Value
from kernel_backend.model.standing import Extension, Standing, TrialRow
from kernel_backend.text import duration, number, value_text

if TYPE_CHECKING:
    import pandas


def trials_head(standing: Standing) -> tuple[str, ...]:
    """The columns of `trial_cells`: those of the trial, then a column a hyperparameter."""
    metric = standing.metric.name
    return ("trial", "state", standing.unit, f"best {metric}", f"newest {metric}", "slot time", *standing.params)


def trial_cells(standing: Standing, row: TrialRow) -> list[str]:
    """A row of the table of trials."""
    state = f"{row.state}: {row.failure}" if row.failure else str(row.state)
    return [
        f"{standing.number}.{row.trial}",
        f"{state}, diverged" if row.diverged else state,
        f"{row.unit}/{standing.units}",
        "" if row.best is None else number(row.best),
        "" if row.value is None else number(row.value),
        duration(row.seconds) if row.seconds else "",
        *(value_text(row.params[name]) if name in row.params else "" for name in standing.params),
    ]


def frame(client: Client, number: int) -> pandas.DataFrame:
    """All trials of a search, a row each, in their order; hyperparameters are columns, too.

    Raises InvalidRequest where pandas is not installed, and Conflict where it is no search.
    """
    if importlib.util.find_spec("pandas") is None:
        raise InvalidRequest("job.trials() makes a DataFrame: pip install pandas, or look with %dl trials")
    import pandas

    rows = client.trial_rows(number, sort="trial")
    found = pandas.DataFrame([_row(row) for row in rows], columns=None if rows else ["trial"])
    return found.set_index("trial")


def _row(row: TrialRow) -> dict[str, Any]:
    """Hyperparameters after what is told of every trial; one of the same name as that is `params_state`."""
    told = {name: getattr(row, name) for name in TrialRow.model_fields if name != "params"}
    told["state"] = str(row.state)
    params: dict[str, Value] = {f"params_{name}" if name in told else name: value for name, value in row.params.items()}
    return {**told, **params}


def extension(trials: int | None, budget: str | float | None, max_time: str | float | None) -> Extension:
    """What a search gets besides: times as `20gpuh` and `8h`, or in seconds. Raises InvalidRequest with the text."""
    return Extension(
        trials=trials,
        budget=parse_slot_time(budget) if isinstance(budget, str) else budget,
        max_time=parse_duration(max_time) if isinstance(max_time, str) else max_time,
    )


def best_rows(client: Client, number: int, count: int, sort: str = "best") -> tuple[Sequence[str], list[list[str]]]:
    """Head and rows of the table of a search's trials, the best first unless it is sorted otherwise."""
    standing = client.search(number, sort, min(count, 1000))
    rows = standing.trials if count <= 1000 else client.trial_rows(number, sort, count)
    return trials_head(standing), [trial_cells(standing, row) for row in rows]

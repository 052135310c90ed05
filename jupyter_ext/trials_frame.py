"""Return a search's trials as a DataFrame."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Value
from kernel_backend.model.views.search_status import TrialRow

if TYPE_CHECKING:
    import pandas


def frame(client: Client, number: int) -> pandas.DataFrame:
    """Return all trials of a search as rows, in order, with the hyperparameters as columns.

    Raises InvalidRequest if pandas is not installed, and Conflict if the experiment is no search.
    """
    if importlib.util.find_spec("pandas") is None:
        raise InvalidRequest("job.trials() makes a DataFrame: pip install pandas, or look with %dl trials")
    import pandas

    rows = client.trial_rows(number, sort="trial")
    found = pandas.DataFrame([_row(row) for row in rows], columns=None if rows else ["trial"])
    return found.set_index("trial")


def _row(row: TrialRow) -> dict[str, Any]:
    """Return a trial as a row of the DataFrame: the common columns, such as its state, then the hyperparameters.

    A hyperparameter with the name of a common column gets the column `params_NAME`.
    """
    told = {name: getattr(row, name) for name in TrialRow.model_fields if name != "params"}
    told["state"] = str(row.state)
    params: dict[str, Value] = {f"params_{name}" if name in told else name: value for name, value in row.params.items()}
    return {**told, **params}

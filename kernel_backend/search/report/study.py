"""Convert a search to an Optuna study, and compute hyperparameter importances with Optuna.

Optuna is an optional extra, `daylight[search]`, and is imported on first use.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Choices, Range
from kernel_backend.model.search.space import Space
from kernel_backend.model.states import TrialState
from kernel_backend.model.values import written
from kernel_backend.model.views.search_status import Importance, TrialCurve, TrialRow
from kernel_backend.search.report.columns import columns
from kernel_backend.search.report.history import LEAST_RESULTS

if TYPE_CHECKING:
    import optuna


# A paused trial may continue; the study has it as pruned, with its current value.
_STATES = {
    TrialState.COMPLETED: "COMPLETE",
    TrialState.FAILED: "FAIL",
    **dict.fromkeys((TrialState.PRUNED, TrialState.STOPPED, TrialState.PAUSED), "PRUNED"),
}


def study(
    name: str, mode: Literal["min", "max"], space: Space, rows: Sequence[TrialRow], lines: Sequence[TrialCurve]
) -> optuna.Study:
    """Return an in-memory Optuna study with all trials in order, and their values at the ends of units.

    `rows` are the trials, `lines` their learning curves. Raises InvalidRequest if Optuna is not installed.
    """
    _check_installed()
    found = _study(name, mode)
    values = {line.trial: _intermediate(line) for line in lines}
    distributions = _distributions(space)
    for row in sorted(rows, key=lambda each: each.trial):
        found.add_trial(_trial(row, values.get(row.trial, {}), distributions))
    return found


def importance(
    mode: Literal["min", "max"], space: Space, params: Sequence[Mapping[str, Value]], values: Sequence[float], unit: int
) -> Importance:
    """Return how important each hyperparameter is for being among the best tenth of trials, as shares of 1.

    Uses PED-ANOVA (Watanabe et al., IJCAI 2023), which supports conditional parameters. `values` has one finite value
    per trial, at the end of `unit`.
    """
    count = len(values)
    if count < LEAST_RESULTS:
        return Importance(trials=count, missing=f"{count} trials have a result to compare; {LEAST_RESULTS} are needed")
    try:
        _check_installed()
    except InvalidRequest as error:
        return Importance(trials=count, missing=error.message)
    import optuna

    found, distributions = _study("importance", mode), _distributions(space)
    for given, value in zip(params, values, strict=True):
        counted = _counted(given, distributions)
        found.add_trial(
            optuna.trial.create_trial(
                params=counted, distributions={name: distributions[name] for name in counted}, value=value
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shares = optuna.importance.get_param_importances(
            found, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
        )
    return Importance(unit=unit, trials=count, shares={name: float(share) for name, share in shares.items()})


def _check_installed() -> None:
    if importlib.util.find_spec("optuna") is None:
        raise InvalidRequest("Optuna is not installed: pip install 'daylight[search]'")


def _study(name: str, mode: Literal["min", "max"]) -> optuna.Study:
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # otherwise Optuna logs each new study
    try:
        return optuna.create_study(study_name=name, direction="maximize" if mode == "max" else "minimize")
    finally:
        optuna.logging.set_verbosity(before)


def _intermediate(line: TrialCurve) -> dict[int, float]:
    return {unit: math.nan if value is None else value for unit, value in zip(line.unit, line.value, strict=True)}


def _trial(row: TrialRow, values: Mapping[int, float], distributions: Mapping[str, Any]) -> optuna.trial.FrozenTrial:
    import optuna

    params = _counted(row.params, distributions)
    state = _STATES.get(row.state, "RUNNING")
    if state == "COMPLETE" and row.best is None:
        state = "FAIL"  # a study accepts no NaN
    told = row.best if state in ("COMPLETE", "PRUNED") else None
    beside = {"daylight_state": str(row.state), "daylight_trial": row.trial, "daylight_seconds": row.seconds}
    beside |= {name: written(value) for name, value in row.params.items() if name not in params}
    return optuna.trial.create_trial(
        state=optuna.trial.TrialState[state],
        params=params,
        distributions={name: distributions[name] for name in params},
        value=told,
        intermediate_values=dict(values),
        user_attrs=beside,
    )


def _distributions(space: Space) -> dict[str, Any]:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    def of(domain: Range | Choices) -> Any:
        if isinstance(domain, Choices):
            return CategoricalDistribution([_choice(value) for value in domain.values])
        log = domain.scale != "linear"
        if domain.whole:
            return IntDistribution(int(domain.low), int(domain.high), log=log)
        return FloatDistribution(domain.low, domain.high, log=log)

    return {column.name: of(column.parameter.domain) for column in columns(space)}


def _choice(value: Value) -> Any:
    """Return a choice as an Optuna study accepts it: lists and dictionaries become text."""
    return written(value) if isinstance(value, list | dict) else value


def _counted(params: Mapping[str, Value], distributions: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a trial's hyperparameters whose values the study's `distributions` contain."""
    chosen = {name: _choice(value) for name, value in params.items() if name in distributions}
    return {name: value for name, value in chosen.items() if _holds(distributions[name], value)}


def _holds(distribution: Any, value: Any) -> bool:
    choices = getattr(distribution, "choices", None)
    if choices is not None:
        return value in choices
    return isinstance(value, int | float) and distribution.low <= value <= distribution.high

"""Attribute a difference between two experiments to its causes, by trainings that restore them group by group.

To restore a cause means that the second experiment is trained again with this cause, such as the data, as in the first.
Example (after "Dave and Leslie"): 52.8 % error as found, 37.3 % with data and hyperparameters restored, 29.2 % with
libraries and seeds restored, too. If everything can be restored, the last row equals the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kernel_backend.model.diff import Difference, DifferenceKind
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.record import Value

GROUPS: tuple[tuple[str, frozenset[DifferenceKind]], ...] = (
    ("code", frozenset({"code"})),
    ("data and hyperparameters", frozenset({"data", "hyperparameters", "configuration"})),
    ("libraries and seeds", frozenset({"environment", "daylight", "seed", "hardware"})),
)
# Differences of undeclared data, or of data that has changed since it was declared.
_UNDECLARED = {"delivered", "observed", "external"}


class Step(NamedTuple):
    """Rerun of experiment `b` in which some groups of causes are set as in experiment `a`.

    `back` has all kinds of differences that are set as in `a`, including those of the steps before. `label` names the
    group that this step adds, such as `+ libraries and seeds`.
    """

    label: str
    back: frozenset[DifferenceKind]


def steps(differences: Sequence[Difference]) -> list[Step]:
    """Return the reruns of `b` to make, in order; each sets one more group of causes as in `a`.

    Groups in which the experiments do not differ are left out.
    """
    differ = {each.kind for each in differences if not each.harmless}
    found: list[Step] = []
    back: frozenset[DifferenceKind] = frozenset()
    for label, kinds in GROUPS:
        back |= kinds
        if kinds & differ:
            found.append(Step(f"+ {label}", back))
    return found


def beyond(differences: Sequence[Difference]) -> list[str]:
    """Return the texts of differences that no rerun can undo, such as other hardware or data that was not declared.

    Differences of declared data are left out, as each rerun checks this data.
    """
    declared = any(each.kind == "data" and each.name not in _UNDECLARED for each in differences)
    found = []
    for each in differences:
        if each.kind == "data" and each.name in _UNDECLARED and not declared:
            found.append(f"data: {each.text}; it was not declared with --data, so it is not listed file by file")
        elif _is_given(each):
            found.append(f"{each.kind}: {each.text}")
    return found


def _is_given(difference: Difference) -> bool:
    """Return True if no rerun can undo a difference.

    These are differences of hardware, environment variables, pretrained weights and the checkpoint to start from.
    """
    if difference.kind == "hardware":
        return difference.name != "threads"
    variable = difference.kind == "environment" and difference.name.isupper()
    return variable or difference.name in ("pretrained", "begins_from")


def params(a: Experiment, b: Experiment, back: frozenset[DifferenceKind]) -> dict[str, Value]:
    """Return the hyperparameters of a rerun in which the kinds of differences in `back` are set as in `a`.

    The names are those of `a` if "code" is in `back`, else those of `b`; the values likewise with "hyperparameters".
    A hyperparameter that only one experiment has gets the value from there.
    """
    names = (a if "code" in back else b).params
    values = {**b.params, **a.params} if "hyperparameters" in back else {**a.params, **b.params}
    return {name: values[name] for name in names}


def config(a: Experiment, b: Experiment, back: frozenset[DifferenceKind]) -> dict[str, Any]:
    """Return the configuration of a rerun as JSON: options whose kind is in `back` as in `a`, others as in `b`."""
    theirs, ours = a.config.to_json(), b.config.to_json()
    kinds: dict[str, DifferenceKind] = {"seed": "seed", "threads": "hardware"}
    return {name: (theirs if kinds.get(name, "configuration") in back else ours)[name] for name in ours}

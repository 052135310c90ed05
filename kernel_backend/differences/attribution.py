"""Which cause made how much of a difference: one group of causes after the other is put back as it was.

After "Dave and Leslie": 52.8 % error as found, 37.3 % with data and hyperparameters put back, 29.2 % with libraries and
seeds; here the last row is the baseline itself where everything could be put back.
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
# Differences of data that follow from what is not declared, or from declared data that has changed.
_UNDECLARED = {"delivered", "observed", "external"}


class Step(NamedTuple):
    """A training with some causes put back: `back` are all of them so far."""

    label: str
    back: frozenset[DifferenceKind]


def steps(differences: Sequence[Difference]) -> list[Step]:
    """What to train, group by group; the groups of which nothing differs are left out."""
    differ = {each.kind for each in differences if not each.harmless}
    found: list[Step] = []
    back: frozenset[DifferenceKind] = frozenset()
    for label, kinds in GROUPS:
        back |= kinds
        if kinds & differ:
            found.append(Step(f"+ {label}", back))
    return found


def beyond(differences: Sequence[Difference]) -> list[str]:
    """What no rerun can put back, each in a sentence. What becomes of declared data shows when it is tried."""
    declared = any(each.kind == "data" and each.name not in _UNDECLARED for each in differences)
    found = []
    for each in differences:
        if each.kind == "data" and each.name in _UNDECLARED and not declared:
            found.append(f"data: {each.text}; it was not declared with --data, so it is not listed file by file")
        elif _is_given(each):
            found.append(f"{each.kind}: {each.text}")
    return found


def _is_given(difference: Difference) -> bool:
    """Whether it is a machine's, a variable of whoever started the service, or in a file: no lock brings it back."""
    if difference.kind == "hardware":
        return difference.name != "threads"
    variable = difference.kind == "environment" and difference.name.isupper()
    return variable or difference.name in ("pretrained", "begins_from")


def params(a: Experiment, b: Experiment, back: frozenset[DifferenceKind]) -> dict[str, Value]:
    """The hyperparameters of a step: those that its code has, with the values of whom they are taken from."""
    names = (a if "code" in back else b).params
    values = {**b.params, **a.params} if "hyperparameters" in back else {**a.params, **b.params}
    return {name: values[name] for name in names}


def config(a: Experiment, b: Experiment, back: frozenset[DifferenceKind]) -> dict[str, Any]:
    """The configuration of a step, as JSON."""
    theirs, ours = a.config.to_json(), b.config.to_json()
    kinds: dict[str, DifferenceKind] = {"seed": "seed", "threads": "hardware"}
    return {name: (theirs if kinds.get(name, "configuration") in back else ours)[name] for name in ours}

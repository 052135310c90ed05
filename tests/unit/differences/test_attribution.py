"""Test that causes are restored group by group, and that a rerun's parts come from the right experiment."""

from __future__ import annotations

import pytest

from kernel_backend.commands.attribution import Submitted, mixed
from kernel_backend.differences.attribution import beyond, config, params, steps
from kernel_backend.differences.diff import causes
from tests.support.sides import PACKAGES, SOURCE, side

EDITED = SOURCE.replace("* scale", "+ scale")


def labels(b) -> list[str]:
    return [step.label for step in steps(causes(side(), b))]


def test_only_groups_of_which_something_differs_are_trained():
    assert labels(side(params={"lr": 0.2, "width": 8})) == ["+ data and hyperparameters"]
    assert labels(side(config={"seed": 3, "batch_size": 64})) == ["+ data and hyperparameters", "+ libraries and seeds"]
    assert labels(side(EDITED, config={"seed": 3})) == ["+ code", "+ libraries and seeds"]
    assert labels(side(config={"max_restarts": 3})) == []


def test_groups_add_up():
    first, second = steps(causes(side(), side(EDITED, params={"lr": 0.2, "width": 8})))
    assert first.back < second.back
    assert second.back == {"code", "data", "hyperparameters", "configuration"}


def test_another_processor_and_other_pretrained_weights_cannot_be_put_back_but_threads_can():
    found = causes(side(), side(config={"threads": 2}, environment={"cpu": "EPYC"}))
    assert beyond(found) == ["hardware: cpu Xeon -> EPYC"]


@pytest.mark.parametrize(
    ("back", "expected"),
    [
        (frozenset(), {"lr": 0.2, "depth": 3}),
        ({"hyperparameters"}, {"lr": 0.1, "depth": 3}),
        ({"code"}, {"lr": 0.2, "width": 8}),
        ({"code", "hyperparameters"}, {"lr": 0.1, "width": 8}),
    ],
)
def test_hyperparameters_are_those_of_the_code_with_the_values_that_are_asked_for(back, expected):
    a, b = side().experiment, side(params={"lr": 0.2, "depth": 3}).experiment
    assert params(a, b, frozenset(back)) == expected


def test_seed_threads_and_the_rest_of_the_configuration_are_put_back_apart():
    a, b = side().experiment, side(config={"seed": 3, "threads": 2, "batch_size": 64}).experiment
    kept = ("seed", "threads", "batch_size")
    asked = {kind: config(a, b, frozenset({kind})) for kind in ("seed", "hardware", "configuration")}
    assert [asked["seed"][name] for name in kept] == [0, 2, 64]
    assert [asked["hardware"][name] for name in kept] == [3, 1, 64]
    assert [asked["configuration"][name] for name in kept] == [3, 2, 32]


def test_a_snapshot_is_mixed_of_two():
    ours = side(
        EDITED, files={"project/a.py": b"b", "git.diff": b"b"}, environment={"distributions": PACKAGES | {"torch": "3"}}
    )
    theirs = side(files={"project/a.py": b"a", "project/b.py": b"a", "git.diff": b"a"})
    a, b = (Submitted(each.experiment, each.snapshot, dict(each.files)) for each in (theirs, ours))
    snapshot, files = mixed(a, b, frozenset({"code"}))
    assert files == {"definition.py": SOURCE.encode(), "project/a.py": b"a", "project/b.py": b"a", "git.diff": b"b"}
    assert snapshot.environment.distributions["torch"] == "3"
    snapshot, files = mixed(a, b, frozenset({"environment"}))
    assert files == {"definition.py": EDITED.encode(), "project/a.py": b"b", "git.diff": b"a"}
    assert snapshot.environment.distributions["torch"] == "2.12.0"

"""Test how a run that its user has not named is called."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.model.experiment import LONGEST_NAME, Config, Submission
from kernel_backend.service.run_name import base_name, changes, named, previous_run
from kernel_backend.spec.assignments import parse_line

FIRST: dict[str, Any] = {"lr": 0.01, "width": 8}


def run(params: dict[str, Any] = FIRST, space: str = "", **config: Any) -> Submission:
    searched = parse_line(space.split()).space
    return Submission(
        snapshot="", python="", cwd="", params=params, space=searched, config=Config.model_validate(config)
    )


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (run(), run(), []),
        (run(), run(FIRST | {"lr": 0.003}), ["lr 0.003"]),
        (run(), run(FIRST | {"dropout": 0.1}), ["dropout 0.1"]),
        (run(FIRST | {"dropout": 0.1}), run(), []),
        (run(threads=2), run(threads=4), []),
        (run(), run(FIRST | {"width": 64}, epochs=20, amp="bf16"), ["width 64", "epochs 20", "amp bf16"]),
        (run(amp="bf16", compile=True), run(), ["no amp", "no compile"]),
        (run(), run(FIRST | {"root": "/data/photos/of/a/long/path"}), ["root /data/photos/of/a/lon..."]),
        (
            run(),
            run({"width": 8}, "lr=1e-4..1e-1:log", search={"method": "asha", "trials": 9}),
            ["lr 0.0001..0.1:log", "search asha", "trials 9"],
        ),
        (run({"width": 8}, "lr=0.1,0.2", search={"method": "grid"}), run(), ["lr 0.01", "no search"]),
    ],
)
def test_a_run_is_told_from_the_one_before_by_what_differs(before: Submission, after: Submission, changed: list[str]):
    assert changes(before, after) == changed


def test_a_name_begins_with_the_program_or_the_notebook():
    assert base_name("", "/home/ada/quickstart.v2.ipynb") == "quickstart.v2"
    assert base_name("train", "/home/ada/quickstart.ipynb") == "train"
    assert base_name("", None) == ""


def test_a_long_name_is_as_long_as_a_name_may_be():
    assert named("quickstart", ["lr 0.003", "width 64"]) == "quickstart: lr 0.003, width 64"
    assert len(named("q" * 300, ["lr 0.003"])) == LONGEST_NAME


def test_the_run_before_is_one_of_the_same_hyperparameters_if_there_is_one():
    other, same, older = run({"depth": 3}), run(FIRST | {"lr": 1.0}), run()
    assert previous_run(run(), [other, same, older]) == same
    assert previous_run(run({"width": 8}, "lr=0.1,0.2"), [other, older]) == older
    assert previous_run(run({"heads": 4}), [other, same]) == other
    assert previous_run(run(), []) is None

"""Test that `--batch-size auto` is refused, with a remedy, if the user's code makes the batches or steps."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import AutoBatch, Config
from tests.support.world import DEFINITION


@pytest.mark.parametrize(
    ("form", "way_out"),
    [
        ("command", "an option of the program"),
        ("keras", "--batch-size N, a number"),
        ("lightning", "the batch size of its DataLoader, which may be an argument of __init__"),
        ("loop", "--batch-size N, a number"),
        ("plain", "functions below %%dlsubmit"),
        ("script", "the batch size of its DataLoader: a name such as batch_size = 64 can be given on the line"),
        ("trainer", "per_device_train_batch_size=N"),
    ],
)
def test_other_forms_are_refused_with_the_way_out(form: str, way_out: str) -> None:
    definition = parse(DEFINITION).model_copy(update={"form": form})
    config = Config(auto_batch=AutoBatch(), form=form if form in ("command", "plain") else "functions")
    with pytest.raises(InvalidDefinition) as refused:
        check_options(definition, config)
    assert refused.value.message.startswith("--batch-size auto is for definitions of functions")
    assert f"write {way_out}" in refused.value.message


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        (DEFINITION.replace("dropout=0.2", "batch_size=8"), {}, "the hyperparameter batch_size sets"),
        (DEFINITION, {"strategy": "fsdp2", "slots": 2}, "with --strategy fsdp2 a slot has no whole model"),
    ],
)
def test_options_that_it_does_not_go_with(source: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidDefinition, match=said):
        check_options(parse(source), Config(auto_batch=AutoBatch(), **options))


def test_functions_are_taken() -> None:
    check_options(parse(DEFINITION), Config(auto_batch=AutoBatch(), slots=2))

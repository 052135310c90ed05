"""Test editing and displaying name, note and tags of an experiment."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.labels import LabelEdit, apply_edit, edit_text, split_tags
from kernel_backend.text.labels import label_lines
from tests.unit.text.test_text import experiment


def labelled(**labels: Any) -> Experiment:
    return experiment(name="net").model_copy(update={"tags": ("draft", "Paper"), **labels})


@pytest.mark.parametrize(
    ("edit", "changes", "text"),
    [
        (LabelEdit(), {}, ""),
        (LabelEdit(name=" net "), {}, ""),
        (LabelEdit(name="wide net"), {"name": "wide net"}, "name 'net' -> 'wide net'"),
        (LabelEdit(note=" a\nb "), {"note": "a\nb"}, "note changed"),
        (LabelEdit(add_tags=("PAPER",)), {}, ""),
        (
            LabelEdit(add_tags=("good", "v1.2/x"), remove_tags=("DRAFT", "unknown")),
            {"tags": ("Paper", "good", "v1.2/x")},
            "tags +good +v1.2/x -draft",
        ),
    ],
)
def test_an_edit_changes_only_what_it_names(edit: LabelEdit, changes: dict[str, Any], text: str):
    before = labelled()
    assert apply_edit(before, edit) == changes
    assert edit_text(before, changes) == text


@pytest.mark.parametrize("tag", ["", "two words", "a,b", 'a"b', "-a", "x" * 51, "[", "a\nb", "\\"])
def test_a_tag_that_cannot_be_is_named(tag: str):
    with pytest.raises(InvalidRequest, match="is no tag"):
        apply_edit(labelled(), LabelEdit(add_tags=(tag,)))


def test_an_experiment_has_so_many_tags_at_most():
    many = tuple(f"t{n}" for n in range(30))
    assert len(apply_edit(labelled(), LabelEdit(add_tags=many))["tags"]) == 32
    with pytest.raises(InvalidRequest, match="33 tags: an experiment has at most 32"):
        apply_edit(labelled(), LabelEdit(add_tags=(*many, "last")))


def test_several_tags_are_written_with_commas():
    assert split_tags(" a, b,,") == ["a", "b"]
    assert split_tags("") == []


def test_labels_are_shown_in_lines():
    assert label_lines(labelled(note="one\ntwo")) == ["tags: draft, Paper", "noted: one", "       two"]
    assert label_lines(labelled(tags=())) == []

"""Test that the saved output of a notebook has the same fields in Python and TypeScript.

It is no part of the API, so no tool compares the two.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_ext.views.saved_state import MIME_TYPE, Saved, SavedSearch
from kernel_backend.model.record import Record

WRITTEN = (Path(__file__).parents[3] / "labextension" / "src" / "model" / "saved.ts").read_text()


@pytest.mark.parametrize("record", [Saved, SavedSearch])
def test_an_interface_has_the_fields_of_its_record(record: type[Record]) -> None:
    found = re.search(rf"^export interface {record.__name__} \{{\n(.*?)^\}}", WRITTEN, re.MULTILINE | re.DOTALL)
    assert found
    assert re.findall(r"^  (\w+):", found[1], re.MULTILINE) == list(record.model_fields)


def test_the_media_type_is_the_same() -> None:
    assert f"'{MIME_TYPE}'" in WRITTEN

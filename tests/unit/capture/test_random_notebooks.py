"""Test random notebooks, in a short version of what `make torture` does."""

from __future__ import annotations

import pytest

from jupyter_ext.capture.follow import abstract_objects
from tests.torture.notebooks import run

pytestmark = pytest.mark.many


def test_a_job_sees_what_the_kernel_saw_in_300_random_notebooks():
    assert [str(each) for each in run(300, seed=1)] == []


def test_a_slice_without_aliases_is_found_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(abstract_objects.AbstractObject, "hold", lambda self, value, under="": None)
    assert any(run(100, seed=1))

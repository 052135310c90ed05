"""Test that a job computes the kernel's values, for a collection of notebooks in a real IPython."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notebooks.collection import Notebook, notebooks
from tests.notebooks.kernel import in_job, in_kernel
from tests.notebooks.template import Call, template

pytestmark = pytest.mark.many

COLLECTION = notebooks()


@pytest.fixture(scope="module")
def apart() -> Iterator[Call]:
    with template() as call:
        yield call


@pytest.mark.parametrize("notebook", COLLECTION, ids=lambda each: each.name)
def test_the_job_sees_what_the_kernel_saw(apart: Call, notebook: Notebook):
    seen, capture, process = apart(in_kernel, notebook)
    assert capture.problems == ()
    assert apart(in_job, capture, process) == (seen, []), capture.source


def test_the_collection_is_large_and_names_each_case_once():
    names = [each.name for each in COLLECTION]
    assert len(names) == len(set(names))
    assert len(names) >= 150

"""Test that a job computes the kernel's values, for a collection of notebooks in a real IPython."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notebooks.collection import Notebook, notebooks
from tests.notebooks.kernel import in_job, in_kernel
from tests.notebooks.template import Call, template

pytestmark = pytest.mark.many

COLLECTION = notebooks()
# One in three is enough for each way of capturing to be run; what a cell is captured as, the other tests tell.
OFTEN = COLLECTION[::3]
EACH = [each if each in OFTEN else pytest.param(each, marks=pytest.mark.long) for each in COLLECTION]


@pytest.fixture(scope="module")
def apart() -> Iterator[Call]:
    with template() as call:
        yield call


@pytest.mark.parametrize("notebook", EACH, ids=[each.name for each in COLLECTION])
def test_the_job_sees_what_the_kernel_saw(apart: Call, notebook: Notebook):
    seen, capture, process = apart(in_kernel, notebook)
    assert capture.problems == ()
    assert apart(in_job, capture, process) == (seen, []), capture.source


def test_the_collection_is_large_and_names_each_case_once():
    names = [each.name for each in COLLECTION]
    assert len(names) == len(set(names))
    assert len(names) >= 150

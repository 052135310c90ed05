"""What several files of unit tests share."""

from __future__ import annotations

import multiprocessing

import pytest

from tests.samples import batches


@pytest.fixture
def data():
    """Batches that are closed in the end, with their loader workers."""
    made = []

    def make(*args, **more):
        made.append(batches(*args, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()
    assert not multiprocessing.active_children()

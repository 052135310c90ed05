"""Test the setting of the pool in which trainings are placed that name none."""

from __future__ import annotations

import pytest
from traitlets import TraitError

from kernel_backend.app import Daylight


@pytest.mark.parametrize(
    ("given", "taken"), [("", ""), ("gpu", "gpu"), (" gpu, cloud,gpu", "gpu,cloud"), ("local", "local")]
)
def test_a_pool_or_several_are_taken(given: str, taken: str):
    assert Daylight(default_pool=given).default_pool == taken


@pytest.mark.parametrize("given", ["G P U", "gpu,", ",", "gpu;cloud"])
def test_what_cannot_be_a_pool_is_refused(given: str):
    with pytest.raises(TraitError, match="is no pool: write gpu or gpu,cloud"):
        Daylight(default_pool=given)

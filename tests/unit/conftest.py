"""Provide fixtures that unit tests share."""

from __future__ import annotations

import os

import pytest

from tests.support.samples import batches, loader_workers


@pytest.fixture
def plain_git(monkeypatch):
    """Configure git without users' settings and hooks, and without time limits on a busy machine."""
    monkeypatch.setattr("kernel_backend.snapshots.git._SECONDS", 60.0)
    for name in [each for each in os.environ if each.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def data():
    """Provide a function that creates Batches, and close them with their loader workers at the end."""
    made = []

    def make(*args, **more):
        made.append(batches(*args, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()
    assert not loader_workers()

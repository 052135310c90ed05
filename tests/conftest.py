"""Fixtures and hooks of all tests."""

from __future__ import annotations

import gc
import os

import hypothesis
import pytest

from tests.support import forkservers

# A service locks the environment of what is submitted, in the background: not once for each test that has one.
os.environ.setdefault("UV_OFFLINE", "1")
# Ranks of Horovod talk to each other once in a cycle also while they wait, and many trainings of tests wait.
os.environ.setdefault("HOROVOD_CYCLE_TIME", "5")

# No test has to be quick, whatever machine it is on; and each has the same examples in every run. Who looks for others
# says so: pytest --hypothesis-profile="other examples".
slow = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile(
    "other examples", hypothesis.settings.default, derandomize=False, deadline=None, suppress_health_check=slow
)
hypothesis.settings.register_profile(
    "any machine", hypothesis.settings.get_profile("other examples"), derandomize=True, database=None
)
hypothesis.settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the process that starts the others, or the only one
        forkservers.make_folder()


def pytest_collection_finish() -> None:
    # What the files of tests have imported stays. A collection would walk all of it, and in a forked process copy it.
    gc.collect()
    gc.freeze()

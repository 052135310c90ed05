"""Fixtures and hooks of all tests."""

from __future__ import annotations

import os

import hypothesis

# A service locks the environment of what is submitted, in the background: not once for each test that has one.
os.environ.setdefault("UV_OFFLINE", "1")

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

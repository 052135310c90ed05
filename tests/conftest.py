"""What holds for all tests."""

from __future__ import annotations

import os

# A service locks the environment of what is submitted, in the background: not once for each test that has one.
os.environ.setdefault("UV_OFFLINE", "1")

"""Fixtures that the tests of environments share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def online() -> None:
    """uv may ask indexes, which the other tests forbid it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("UV_OFFLINE", raising=False)
        yield

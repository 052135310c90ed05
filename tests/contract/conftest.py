"""Keep the folders of these tests in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.memory_folder import memory_folder


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Provide a folder in memory: stores commit often, and what a power failure leaves is no promise of these tests."""
    with memory_folder() as folder:
        yield folder

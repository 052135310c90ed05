"""Provide one hub for all tests of this folder; each test undoes its changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hub.hub import Hub


@pytest.fixture(scope="package")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    pytest.importorskip("jupyterhub", reason="daylight[hub] is not installed")
    hub = Hub(tmp_path_factory.mktemp("hub") / "hub")
    try:
        yield hub.start()
    finally:
        hub.close()

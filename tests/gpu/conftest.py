"""Skip the tests of this folder, with a reason, if there is no CUDA device."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "distributed"))  # its gangs


@pytest.fixture(autouse=True)
def _device(request: pytest.FixtureRequest) -> None:
    wanted = request.node.get_closest_marker("gpu")
    devices = int(wanted.kwargs.get("devices", 1)) if wanted else 1
    if torch.cuda.device_count() < devices:
        pytest.skip(f"needs {devices} CUDA device(s), and there are {torch.cuda.device_count()}")

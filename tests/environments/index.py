"""Check whether a package index can be reached from this machine."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from kernel_backend.environments import uv
from kernel_backend.errors import NoEnvironment


@cache
def _reason() -> str:
    """Return why no packages can be downloaded; "" if they can."""
    if os.environ.get("CI"):
        return ""  # there it must be
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.delenv("UV_OFFLINE", raising=False)
        try:
            options = ["--no-deps", "--no-header", "--python", sys.executable]
            uv.run("pip", "compile", *options, "-", folder=Path(folder), python=Path(sys.executable), stdin="six")
        except NoEnvironment as error:
            return f"no package index can be reached: {error.message}"
    return ""


needs_index = pytest.mark.skipif(bool(_reason()), reason=_reason())

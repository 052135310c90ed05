"""Provide environments with packages that take much room, or that need others than the tests."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def environment(name: str = "tensorflow") -> Path:
    """Return a Python with the packages of `requirements/NAME.txt` and all of this one; it is made once and cached.

    If no package index can be reached, fail in CI, and skip the test elsewhere.
    """
    lock = ROOT / "requirements" / f"{name}.txt"
    key = hashlib.sha256(lock.read_bytes() + sys.version.encode() + sys.prefix.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "daylight" / f"{name}-{key}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not (cache / "done").exists():
            _make(cache / "venv", lock)
            (cache / "done").touch()
    return cache / "venv" / "bin" / "python"


def kernel_of_tensorflow(folder: Path) -> str:
    """Write the kernelspec of a kernel with TensorFlow into a folder of JUPYTER_PATH; return its name."""
    described = folder / "kernels" / "tensorflow" / "kernel.json"
    described.parent.mkdir(parents=True)
    argv = [str(environment()), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    described.write_text(json.dumps({"argv": argv, "display_name": "TensorFlow", "language": "python"}))
    return described.parent.name


def _make(folder: Path, lock: Path) -> None:
    python = folder / "bin" / "python"
    for command in (
        ["venv", "--clear", "--python", sys.executable, str(folder)],
        ["pip", "install", "--python", str(python), "--require-hashes", "-r", str(lock)],
    ):
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "uv"), "--quiet", *command],
            env={name: value for name, value in os.environ.items() if name != "UV_OFFLINE"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            text = f"no environment with {lock.name}: {done.stderr.strip()[-400:]}"
            pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)
    packages = next((folder / "lib").glob("python*/site-packages"))
    # Behind the environment's own packages on the path.
    own = sysconfig.get_path("purelib")
    (packages / "of_the_tests.pth").write_text(f"import site; site.addsitedir({own!r})\n")

"""Test the wheel of Daylight itself: it has the running files, and its bytes depend only on them."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from kernel_backend import __version__
from kernel_backend.environments import uv
from kernel_backend.environments.wheel import own_wheel
from kernel_backend.errors import NoEnvironment
from kernel_backend.snapshots.environment import record
from kernel_backend.snapshots.installed import own_files, own_root


def ours() -> tuple[Path, str]:
    root, digest = own_root(), record().daylight
    assert root is not None
    assert digest is not None
    return root, digest


def test_the_same_files_give_the_same_bytes_wherever_they_lie(tmp_path: Path):
    root, digest = ours()
    for name, path in own_files(root).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(path.read_bytes())
        os.utime(tmp_path / name, (0, 0))
    assert own_wheel(tmp_path, digest) == own_wheel(root, digest)


def test_files_that_have_changed_since_make_no_wheel(tmp_path: Path):
    root, digest = ours()
    for name, path in own_files(root).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(path.read_bytes())
    (tmp_path / "daylight" / "__init__.py").write_text("changed = True\n")
    with pytest.raises(NoEnvironment, match="have changed since"):
        own_wheel(tmp_path, digest)


def test_it_installs_and_tells_the_same_digest_from_there(tmp_path: Path):
    root, digest = ours()
    name, data = own_wheel(root, digest)
    assert name == f"daylight-{__version__}-py3-none-any.whl"
    assert zipfile.ZipFile(BytesIO(data)).testzip() is None
    (tmp_path / name).write_bytes(data)
    python = Path(sys.executable)
    uv.run("venv", "--python", sys.executable, str(tmp_path / "venv"), folder=tmp_path, python=python)
    new = tmp_path / "venv" / "bin" / "python"
    uv.run("pip", "install", "--no-deps", "--python", str(new), str(tmp_path / name), folder=tmp_path, python=python)
    script = tmp_path / "venv" / "told.py"
    script.write_text("from kernel_backend.snapshots.installed import installed as i; print(i()['daylight'])")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    clean["PYTHONPATH"] = str(next(Path(path) for path in sys.path if (Path(path) / "pydantic").is_dir()))
    told = subprocess.run([new, "-P", script], capture_output=True, text=True, env=clean, cwd=tmp_path, check=False)
    assert told.stdout.strip() == digest, told.stderr

"""Test the wheel, which is built from the sources alone and installed in a fresh environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[2]
TOTAL = 310_000  # bytes of JavaScript and style, most of which a page loads when it is needed


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command, assert its success, and return what it printed on both streams."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **variables},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def link(source: str, target: str) -> None:
    """Hard-link a file instead of copying it, if possible, since nothing writes to it."""
    try:
        if source.endswith(".package-lock.json"):
            raise OSError("npm writes to it")
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from files in the repository, without earlier build products."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    # The tools that build it may be the ones that are here.
    shutil.copytree(ROOT / "node_modules", source / "node_modules", copy_function=link, symlinks=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # Without isolation: where Node.js came from its Python package, `npm` has to find that package.
    build = ("wheel", "--no-deps", "--no-build-isolation", "-w", out, ".")
    run(sys.executable, "-m", "pip", *build, cwd=source, PATH=path)
    return next(out.glob("daylight-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the `bin` of a fresh environment with the wheel and JupyterLab."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder)
    # By uv, which links the packages that it has already, and compiles no modules that nobody imports.
    install = (ROOT / "scripts" / "uv", "pip", "install", "-q", "--python", folder / "bin/python")
    wanted = f"daylight[server,widget] @ {wheel.as_uri()}", "jupyterlab>=4.4"
    run(sys.executable, *install, *wanted, cwd=folder, UV_OFFLINE="0")
    return folder / "bin"


def ask(installed: Path, *arguments: str) -> str:
    """Run `jupyter ...` of that environment with only its own configuration, and return its output."""
    own = {name: str(installed.parent / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "HOME")}
    return run(
        installed / "jupyter",
        *arguments,
        cwd=installed.parent,
        PATH=f"{installed}:/usr/bin:/bin",
        JUPYTER_PREFER_ENV_PATH="1",
        **own,
    )


def test_jupyterlab_finds_the_extension(installed: Path) -> None:
    said = ask(installed, "labextension", "list")
    assert "daylight v0.1.0" in said
    assert next(line for line in said.splitlines() if "daylight v0.1.0" in line).count("OK") == 1


def test_the_jupyter_server_loads_its_side(installed: Path) -> None:
    said = ask(installed, "server", "extension", "list")
    told = [line for line in said.splitlines() if "jupyter_ext" in line]
    assert "enabled" in told[0]
    assert "OK" in told[-1]


def test_a_kernel_finds_the_widget_that_was_built(installed: Path) -> None:
    code = "from importlib.resources import files as f; print((f('jupyter_ext.views') / 'static/widget.js').is_file())"
    assert run(installed / "python", "-c", code, cwd=installed.parent).strip() == "True"


def test_the_wheel_holds_what_it_needs_and_no_sources_of_the_front_end(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("share/jupyter/labextensions/daylight/package.json") for name in names)
    assert any(name.endswith("jupyter_server_config.d/daylight.json") for name in names)
    for page in ("main", "models", "experiment"):
        assert any(re.fullmatch(rf"kernel_backend/api/static/{page}-\w+\.js", name) for name in names), page
    assert not [
        name for name in names if name.endswith((".ts", ".tsx")) or name.startswith(("tests/", "labextension/"))
    ]


def test_the_wheel_holds_the_quickstart_as_it_is(wheel: Path) -> None:
    shipped = zipfile.ZipFile(wheel).read("jupyter_ext/quickstart.ipynb")
    assert shipped == (ROOT / "binder" / "quickstart.ipynb").read_bytes()


def test_the_front_end_is_small(wheel: Path) -> None:
    # What of it a page loads at once is seen in a browser: tests/browser/test_first_load.py.
    static = [each for each in zipfile.ZipFile(wheel).infolist() if "labextensions/daylight/static/" in each.filename]
    scripts = {Path(each.filename).name: each.file_size for each in static if each.filename.endswith(".js")}
    assert sum(scripts.values()) <= TOTAL, scripts

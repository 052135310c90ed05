"""The worker's side of local modules: those that travelled are imported, whatever lies elsewhere now."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.model.snapshot import DESCRIPTION, Environment, Project, Snapshot
from kernel_backend.runner.left_behind import left_behind
from kernel_backend.runner.load import load
from kernel_backend.snapshots.shipped import working_folder


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    modules, path, finders = set(sys.modules), list(sys.path), list(sys.meta_path)
    yield
    sys.path[:], sys.meta_path[:] = path, finders
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    importlib.invalidate_caches()


def unpacked(tmp_path: Path, source: str, files: dict[str, str]) -> tuple[Path, Path]:
    """The code folder of a snapshot whose project was at `live`, and that folder."""
    live, code = tmp_path / "live", tmp_path / "code"
    roles = "def model(): ...\ndef train_data(): ...\ndef loss(): ...\n"
    snapshot = Snapshot(
        version="", numerics=1, pieces=(), roles_from=1, project=Project(root=str(live), cwd="books", paths=("src",)),
        environment=Environment(python="", implementation="", platform="", cpu="", cores=1, distributions={}),
    )  # fmt: skip
    for name, text in {"definition.py": source + roles, DESCRIPTION: snapshot.model_dump_json(), **files}.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(text)
    (live / "src").mkdir(parents=True)
    (live / "books").mkdir()
    return code, live


def test_shipped_modules_win_over_live_ones_that_the_definition_puts_in_front(tmp_path: Path):
    code, live = unpacked(
        tmp_path,
        "import sys; sys.path.insert(0, '../src')\nimport helpers, nets.deep, other\n",
        {"project/src/helpers.py": "x = 'shipped'", "project/src/nets/__init__.py": "", "project/src/nets/deep.py": ""},
    )
    (live / "src" / "helpers.py").write_text("x = 'live'")
    (live / "src" / "other.py").write_text("")
    sys.path.insert(0, str(live / "src"))
    loaded = load(code, live / "books")
    assert loaded.module.helpers.x == "shipped"
    assert sys.modules["nets.deep"].__file__ == str(code / "project/src/nets/deep.py")
    text = left_behind(code, live / "books", loaded.snapshot)
    assert text is not None
    assert f"not in the snapshot: other ({live / 'src/other.py'})" in text
    assert "helpers" not in text


def test_a_namespace_package_has_its_shipped_parts_first_and_the_others_too(tmp_path: Path):
    code, live = unpacked(tmp_path, "import space.one, space.two\n", {"project/src/space/one.py": ""})
    (live / "books" / "space").mkdir()
    (live / "books" / "space" / "two.py").write_text("")
    load(code, live / "books")
    assert sys.modules["space.one"].__file__ == str(code / "project/src/space/one.py")


def test_all_that_came_from_the_snapshot_needs_no_words(tmp_path: Path):
    code, live = unpacked(tmp_path, "import helpers\n", {"project/src/helpers.py": ""})
    assert left_behind(code, live / "books", load(code, live / "books").snapshot) is None


def test_where_the_folder_is_gone_a_job_runs_among_the_shipped_files(tmp_path: Path):
    code, live = unpacked(tmp_path, "", {"project/books/words.txt": ""})
    assert working_folder(str(live), code) == str(live)
    assert working_folder(str(tmp_path / "gone"), code) == str(code / "project/books")
    described = json.loads((code / DESCRIPTION).read_text()) | {"project": None}
    (code / DESCRIPTION).write_text(json.dumps(described))
    assert working_folder(str(tmp_path / "gone"), code) == str(code / "project")


def test_sources_of_an_editable_distribution_serve_where_it_is_not_installed(tmp_path: Path):
    files = {"editable/mine/mine_of_then.py": "x = 1", "editable/mine/json/__init__.py": "raise ImportError"}
    code, live = unpacked(tmp_path, "import mine_of_then, json\n", files)
    load(code, live / "books")
    assert sys.modules["mine_of_then"].__file__ == str(code / "editable/mine/mine_of_then.py")

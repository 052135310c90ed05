"""Test that a worker imports the snapshot's local modules, whatever else has the same names."""

from __future__ import annotations

import importlib
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.model.experiment import Config
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.snapshot import DESCRIPTION, NODE_LINK, Environment, Project, Snapshot
from kernel_backend.runner.definition.load import load
from kernel_backend.runner.definition.unsnapshotted import left_behind
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
    """Return the code folder of a snapshot, and the folder `live` of its original project."""
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


@pytest.mark.parametrize("own", ["definition.py", "definition/__init__.py"])
def test_the_users_own_module_of_the_definitions_name_is_the_one_that_is_imported(
    tmp_path: Path, own: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(sys.modules, "definition", raising=False)  # a definition that another test has loaded
    source = "from definition import Net\nclass Data:\n    size = Net.size\n"
    code, live = unpacked(tmp_path, source, {f"project/src/{own}": "class Net:\n    size = 3\n"})
    loaded = load(code, live / "books")
    assert loaded.module.Net is sys.modules["definition"].Net
    assert pickle.loads(pickle.dumps(loaded.module.Data)).size == 3
    # A process that is spawned, such as a loader worker, has the same module path.
    pickled = pickle.dumps(loaded.module.Data)
    line = f"import pickle, sys; sys.path[:0] = {sys.path[:5]}; print(pickle.loads({pickled}).size)"
    assert subprocess.check_output([sys.executable, "-c", line], text=True) == "3\n"


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


def job(code: Path, cwd: Path, **fields: Any) -> LaunchSpec:
    facts = {"experiment": 1, "trial": 1, "attempt": 1, "params": {}, "placement": [], "python": "", "snapshot": ""}
    facts |= {"cwd": str(cwd), "code": str(code), "checkpoints": "", "home": "", "rerun": True, "config": Config()}
    return LaunchSpec.model_validate(facts | fields)


def test_where_the_folder_is_gone_a_job_runs_among_the_shipped_files(tmp_path: Path):
    code, live = unpacked(tmp_path, "", {"project/books/words.txt": "", "project/src/nets.py": "x = 1"})
    (live / "books" / "words.txt").write_text("")
    stand_in, gone = tmp_path / "stand-in", tmp_path / "gone"
    assert working_folder(job(code, live / "books"), stand_in) == (str(live / "books"), None)
    assert working_folder(job(code, gone), stand_in) == (str(code / "project/books"), None)
    described = json.loads((code / DESCRIPTION).read_text()) | {"project": None}
    (code / DESCRIPTION).write_text(json.dumps(described))
    assert working_folder(job(code, gone), stand_in) == (str(code / "project"), None)
    assert not stand_in.exists()


@pytest.fixture
def edited(tmp_path: Path) -> tuple[Path, Path]:
    """Return an unpacked snapshot whose included files have changed in the working folder since."""
    files = {"project/books/words.txt": "then", "project/conf.yaml": "then", "project/src/nets.py": "x = 1"}
    code, live = unpacked(tmp_path, "", files | {"project/books/this.ipynb": "then"})
    (live / "books" / "words.txt").write_text("now!")
    (live / "books" / "beside.txt").write_text("beside")
    return code, live / "books"


def test_a_rerun_reads_included_files_as_they_were_submitted(edited: tuple[Path, Path], tmp_path: Path):
    working = working_folder(job(*edited), tmp_path / "stand-in")
    texts = [Path(working.cwd, name).read_text() for name in ("words.txt", "../conf.yaml", "beside.txt")]
    assert texts == ["then", "then", "beside"]
    assert working.note is not None
    assert working.note.startswith("../conf.yaml, words.txt has changed since it was submitted and is read as it was: ")


def test_a_rerun_stays_in_the_folder_in_which_it_began(edited: tuple[Path, Path], tmp_path: Path):
    code, live = edited
    first = working_folder(job(code, live), tmp_path / "stand-in")
    Path(first.cwd, "words.txt").write_text("written over")
    Path(first.cwd, "log.csv").write_text("epoch 1")
    again = working_folder(job(code, live, attempt=2), tmp_path / "stand-in")
    assert again == (first.cwd, None)
    assert Path(again.cwd, "words.txt").read_text() == "written over"
    assert Path(again.cwd, "log.csv").read_text() == "epoch 1"
    # What a training in the folder itself has written over is its own.
    assert working_folder(job(code, live, attempt=2), tmp_path / "other") == (str(live), None)


def test_a_first_training_is_in_its_folder_and_told_of_what_has_changed(edited: tuple[Path, Path], tmp_path: Path):
    working = working_folder(job(*edited, rerun=False), tmp_path / "stand-in")
    said = "../conf.yaml, words.txt has changed since it was submitted: it is read as it is now"
    assert working == (str(edited[1]), said)
    assert working_folder(job(*edited, rerun=False, attempt=2), tmp_path / "stand-in").note is None


def test_a_folder_of_another_machine_with_the_same_path_gets_the_included_files(
    edited: tuple[Path, Path], tmp_path: Path
):
    code, live = edited
    (live / "words.txt").unlink()
    working = working_folder(job(code, live, rerun=False), tmp_path / "stand-in")
    texts = [Path(working.cwd, name).read_text() for name in ("words.txt", "../conf.yaml", "beside.txt")]
    assert texts == ["then", "then", "beside"]
    assert not (live / "words.txt").exists()
    again = working_folder(job(code, live, rerun=False, attempt=2, staged=True), tmp_path / "of another node")
    assert Path(again.cwd, "words.txt").read_text() == "then"


def test_one_that_was_submitted_from_elsewhere_has_nothing_to_compare(edited: tuple[Path, Path], tmp_path: Path):
    (tmp_path / "scratch").mkdir()
    working = working_folder(job(edited[0], tmp_path / "scratch"), tmp_path / "stand-in")
    assert working == (str(tmp_path / "scratch"), None)


def test_one_that_was_half_made_by_a_service_that_died_is_made_anew(edited: tuple[Path, Path], tmp_path: Path):
    (tmp_path / "stand-in.making" / "tmp").mkdir(parents=True)
    (tmp_path / "stand-in.making" / "tmp" / "stray").touch()
    working = working_folder(job(*edited), tmp_path / "stand-in")
    assert Path(working.cwd, "words.txt").read_text() == "then"
    assert not (tmp_path / "stand-in" / "tmp" / "stray").exists()


def test_data_that_is_elsewhere_is_found_by_its_relative_path_even_where_the_folder_is_gone(tmp_path: Path):
    code, live = unpacked(tmp_path, "", {"project/books/words.txt": "then"})
    (live / "books" / "words.txt").write_text("then")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.csv").write_text("1")
    led = {"config": Config(data_at={"../leslie": str(tmp_path / "new")})}
    for stand_in in (tmp_path / "first", tmp_path / "second"):
        working = working_folder(job(code, live / "books", **led), stand_in)
        assert working.note is not None
        assert f"../leslie is read at {tmp_path / 'new'}: it runs in {working.cwd}, an overlay of " in working.note
        assert Path(working.cwd, "../leslie/a.csv").read_text() == "1"
        assert Path(working.cwd, "words.txt").read_text() == "then"
        shutil.rmtree(live, ignore_errors=True)


def test_remote_data_at_a_path_is_a_link_to_a_place_of_each_node_that_nobody_can_guess(tmp_path: Path):
    code, live = unpacked(tmp_path, "", {"project/books/words.txt": "then"})
    description = json.loads((code / DESCRIPTION).read_text())
    url = "s3://bucket/images"
    facts = {"files": 1, "bytes": 1, "digest": "", "listed": ""}
    description["data"] = [{"name": f"./a/images={url}", "into": "./a/images", "path": url, **facts}]
    (code / DESCRIPTION).write_text(json.dumps(description))
    (live / "books" / "words.txt").write_text("now")
    (live / "books" / "a" / "images").mkdir(parents=True)
    (live / "books" / "a" / "images" / "sample.png").write_text("")
    (live / "books" / "a" / "b").write_text("b")
    places = set()
    for stand_in in (tmp_path / "first", tmp_path / "second"):
        here = (live / "books").exists()
        working = working_folder(job(code, live / "books", rerun=False), stand_in)
        assert working_folder(job(code, live / "books", rerun=False, attempt=2), stand_in).cwd == working.cwd
        assert working.note is not None
        assert ("words.txt has changed since it was submitted: it is read as it is now." in working.note) is here
        assert f"./a/images is read at {url}: it runs in {working.cwd}, an overlay of " in working.note
        assert Path(working.cwd, "words.txt").read_text() == ("now" if here else "then")
        assert sorted(each.name for each in Path(working.cwd, "a").iterdir()) == (
            ["b", "images"] if here else ["images"]
        )
        places.add(Path(working.cwd, "a/images").readlink())
        shutil.rmtree(live, ignore_errors=True)
    assert len({each for each in places if str(each).startswith(NODE_LINK)}) == 2


def test_sources_of_an_editable_distribution_serve_where_it_is_not_installed(tmp_path: Path):
    files = {"editable/mine/mine_of_then.py": "x = 1", "editable/mine/json/__init__.py": "raise ImportError"}
    code, live = unpacked(tmp_path, "import mine_of_then, json\n", files)
    load(code, live / "books")
    assert sys.modules["mine_of_then"].__file__ == str(code / "editable/mine/mine_of_then.py")

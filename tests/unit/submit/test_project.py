"""Test which local modules and included files a snapshot contains, and the messages about missing ones."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from jupyter_ext.project import Imported, ProjectFiles, collect, place_of


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide a project with notebooks in `notebooks` and code in `src`."""
    root = tmp_path / "project"
    write(root, {"pyproject.toml": "", "notebooks/a.ipynb": ""})
    monkeypatch.chdir(root / "notebooks")
    monkeypatch.syspath_prepend(str(root / "notebooks"))
    monkeypatch.syspath_prepend(str(root / "src"))
    before = set(sys.modules)
    yield root
    for name in set(sys.modules) - before:
        del sys.modules[name]
    importlib.invalidate_caches()


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    importlib.invalidate_caches()


def taken(source: str, *include: str, **options: object) -> ProjectFiles:
    return collect(source, place_of(Path.cwd()), include=include, **options)  # type: ignore[arg-type]


def names(source: str, *include: str) -> set[str]:
    found = taken(source, *include)
    assert not found.problems
    return {name.removeprefix("project/") for name in found.files}


def said(source: str, *include: str, **options: object) -> str:
    return "\n".join(problem.message for problem in taken(source, *include, **options).problems)


def test_modules_travel_with_what_they_import_in_turn_and_packages_as_whole_folders(root: Path):
    write(
        root,
        {
            "src/helpers.py": "import deeper, torch",
            "src/deeper.py": "def late():\n    import importlib\n    importlib.import_module('latest')",
            "src/latest.py": "",
            "src/unused.py": "",
            "src/nets/__init__.py": "",
            "src/nets/blocks/conv.py": "",
            "src/nets/words.txt": "beside the code",
            "notebooks/local.py": "",
        },
    )
    found = taken("import helpers\ndef model():\n    from nets.blocks import conv\nfrom local import *")
    assert set(found.files) == {
        f"project/{name}"
        for name in (
            "src/helpers.py", "src/deeper.py", "src/latest.py", "src/nets/__init__.py", "src/nets/blocks/conv.py",
            "src/nets/words.txt", "notebooks/local.py",
        )
    }  # fmt: skip
    assert found.project is not None
    assert (found.project.root, found.project.cwd) == (str(root), "notebooks")
    assert set(found.project.paths) == {"src", "notebooks"}
    assert found.files["project/src/nets/words.txt"] == b"beside the code"


def test_what_is_installed_or_our_own_does_not_travel(root: Path):
    assert taken("import os, pathlib, pytest, numpy.linalg, daylight, kernel_backend.model") == ProjectFiles()


def test_ignored_files_stay_behind_but_not_modules_that_are_imported(root: Path):
    write(
        root,
        {
            ".gitignore": "*.csv\n_version.py\nprivate/\n",
            "src/nets/.daylightignore": "samples/*\n!small.csv\n",
            "src/nets/__init__.py": "from ._version import number",
            "src/nets/_version.py": "number = 1",
            "src/nets/large.csv": "1",
            "src/nets/small.csv": "1",
            "src/nets/samples/one.png": "1",
            "src/nets/__pycache__/x.pyc": "1",
            "src/nets/.venv/lib.py": "",
            "src/nets/env/pyvenv.cfg": "",
            "src/private/__init__.py": "",
            "src/private/key.txt": "1",
        },
    )
    own = {"src/nets/.daylightignore", "src/nets/__init__.py", "src/nets/_version.py", "src/nets/small.csv"}
    assert names("import nets") == own
    assert names("import private") == {"src/private/__init__.py"}


def test_a_namespace_package_travels_by_the_modules_that_are_imported(root: Path):
    write(root, {"src/space/one.py": "from . import two", "src/space/two.py": "", "src/space/large.bin": "1"})
    assert names("import space.one") == {"src/space/one.py", "src/space/two.py"}


def test_included_files_folders_and_globs_travel_though_they_are_ignored(root: Path):
    write(root, {".gitignore": "data/\n*.json", "data/a.txt": "", "data/.gitignore": "b.txt", "data/b.txt": ""})
    write(root, {"notebooks/one.json": "", "notebooks/two.json": ""})
    assert names("", "../data") == {"data/a.txt", "data/.gitignore"}
    assert names("", "*.json", "one.json") == {"notebooks/one.json", "notebooks/two.json"}
    assert "--include nothing*: there is nothing of that name" in said("", "nothing*")
    write(root.parent, {"outside.txt": ""})
    assert "lies outside of the project folder" in said("", "../../outside.txt")


@pytest.mark.parametrize(
    "source",
    [
        "Path(__file__).parent / 'classes.json'",
        "json.load(open(os.path.join(os.path.dirname(__file__), 'classes.json')))",
        "HERE = Path(__file__).resolve().parent\ndef names(): return (HERE / 'classes.json').read_text()",
        "def here(name): return Path(__file__).with_name(name)\nlabels = here('classes.json').read_text()",
        "class Names:\n    root = Path(__file__).parent\n    def read(self): return open(self.root / 'classes.json')",
        "import pkgutil\npkgutil.get_data(__name__, 'classes.json')",
        "from importlib import resources\nresources.files(__package__).joinpath('classes.json')",
        "from importlib.resources import files\n(files('helpers') / 'classes.json').read_text()",
    ],
)
def test_a_data_file_that_a_module_names_by_its_own_place_travels(root: Path, source: str):
    write(
        root, {"src/helpers.py": source, "src/classes.json": "[]", "src/others.json": "", "notebooks/classes.json": ""}
    )
    assert names("import helpers") == {"src/helpers.py", "src/classes.json"}


def test_a_data_file_in_another_folder_of_the_project_travels_by_its_path(root: Path):
    write(root, {"src/helpers.py": "P = Path(__file__).parents[1] / 'data' / 'words.txt'", "data/words.txt": ""})
    found = taken("import helpers")
    assert set(found.files) == {"project/src/helpers.py", "project/data/words.txt"}
    assert not found.warnings


def test_a_name_that_is_looked_for_in_the_working_folder_does_not_travel(root: Path):
    write(root, {"src/helpers.py": "files = open('classes.json'); here = __file__", "src/classes.json": "[]"})
    assert names("import helpers") == {"src/helpers.py"}


@pytest.mark.parametrize(
    ("named", "files"),
    [
        ("weights.bin", {"src/weights.bin": "0" * 16_000_001}),
        ("key.json", {"src/key.json": ""}),
        ("data", {"src/data/a": ""}),
    ],
)
def test_data_beside_a_module_that_stays_behind_is_named(root: Path, named: str, files: dict[str, str]):
    write(root, {".gitignore": "key.json", "src/helpers.py": f"P = Path(__file__).parent / '{named}'", **files})
    found = taken("import helpers")
    assert set(found.files) == {"project/src/helpers.py"}
    assert found.warnings == (
        f"src/helpers.py names src/{named}, which does not travel: where the job needs it, submit with --include "
        f"../src/{named}",
    )


# As Hydra finds a folder of configuration: next to the file of the code that calls it.
HYDRA = """
import sys
from pathlib import Path
def initialize(config_path):
    return (Path(sys._getframe(1).f_code.co_filename).parent / config_path / "config.yaml").read_text()
def main(config_path):
    return lambda function: function
"""


@pytest.mark.parametrize(
    ("source", "config"),
    [
        ("import hydra\n@hydra.main(config_path='conf')\ndef run(cfg): pass", "src/conf"),
        ("from hydra import main as configured\n@configured('../conf')\ndef run(cfg): pass", "conf"),
        ("import hydra as h\ncfg = h.initialize(version_base=None, config_path='.')", "src"),
    ],
)
def test_the_configuration_that_hydra_reads_next_to_a_module_travels(root: Path, source: str, config: str):
    others = {f"{config}/readme.txt": "", f"{config}/.hydra/config.yaml": "", ".gitignore": "secret.yaml"}
    write(root, {"src/hydra.py": HYDRA, "src/helpers.py": source, f"{config}/secret.yaml": "", **others})
    write(root, {f"{config}/config.yaml": "lr: 1", f"{config}/db/small.yaml": ""})
    own = {f"{config}/config.yaml", f"{config}/db/small.yaml"}
    assert names("import helpers") == {"src/helpers.py", "src/hydra.py", *own}
    program = collect(source, place_of(root / "src"), search=[root / "src"])
    assert {f"project/{name}" for name in own} < set(program.files)


def test_a_cell_finds_the_configuration_that_hydra_reads_next_to_the_notebook(root: Path):
    source = "from hydra import initialize\ncfg = initialize(config_path='conf/small')"
    write(root, {"src/hydra.py": HYDRA, "notebooks/conf/small/config.yaml": "lr: 1"})
    code = root.parent / "code"
    write(code, {"definition.py": source, **{name: data.decode() for name, data in taken(source).files.items()}})
    held = {}
    exec(compile(source, str(code / "definition.py"), "exec"), held)
    assert held["cfg"] == "lr: 1"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("../conf", r"Write initialize_config_dir\(os.path.abspath\('../conf'\)\) and compose"),
        ("gone", "there is no folder .*/notebooks/gone$"),
    ],
)
def test_configuration_that_a_cell_cannot_have_in_a_job_is_refused(root: Path, config: str, why: str):
    write(root, {"src/hydra.py": HYDRA, "conf/config.yaml": ""})
    source = f"import hydra\n\n@hydra.main(config_path='{config}')\ndef run(cfg): pass"
    said_here = said(source)
    assert said_here.startswith(f"line 3: Hydra's config_path='{config}' cannot be read in a job: ")
    assert re.search(why, said_here)


def test_too_much_is_an_error_that_names_the_five_largest(root: Path):
    write(root, {"src/nets/__init__.py": "", "src/helpers.py": "#" * 50})
    write(root, {f"src/nets/part{i}/{j}.bin": "x" * 100 * i for i in range(1, 7) for j in range(2)})
    text = said("import nets, helpers", limit=1000)
    assert "have 4.2 kB, more than 1.0 kB" in text
    assert text.index("src/nets/part6/ (1.2 kB)") < text.index("src/nets/part2/ (400 B)")
    assert "part1" not in text
    assert ".daylightignore" in text
    assert "project/src/helpers.py" in taken("import nets, helpers", limit=1000).files  # for what else there is to tell


def test_links_travel_as_files_unless_they_lead_out_of_the_project(root: Path):
    write(root, {"src/nets/__init__.py": "", "shared/words.txt": "shared"})
    write(root.parent, {"elsewhere/secret.txt": "no"})
    os.symlink(root / "shared", root / "src/nets/shared")
    os.symlink(root / "src", root / "src/nets/round")
    os.symlink(root.parent / "elsewhere", root / "src/nets/out")
    os.symlink(root / "nowhere", root / "src/nets/broken")
    found = taken("import nets")
    assert found.files["project/src/nets/shared/words.txt"] == b"shared"
    assert not any("secret" in name for name in found.files)
    assert found.warnings == ("src/nets/out leads out of the project folder and does not travel",)
    assert not found.problems


def test_what_cannot_be_found_or_read_is_told_with_its_place(root: Path):
    text = said("import os\nimport nowhere_at_all\ntry:\n    import perhaps_there\nexcept ImportError:\n    pass")
    assert text == "line 2 imports nowhere_at_all, which this Python does not have. Install it first."
    write(root, {"src/broken.py": "def ("})
    assert names("import broken") == {"src/broken.py"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_a_problem(root: Path):
    write(root, {"src/helpers.py": ""})
    (root / "src/helpers.py").chmod(0)
    assert said("import helpers") == "src/helpers.py cannot be read: Permission denied"


def test_a_module_outside_of_the_project_is_told(root: Path, monkeypatch: pytest.MonkeyPatch):
    write(root.parent, {"elsewhere/faraway.py": ""})
    monkeypatch.syspath_prepend(str(root.parent / "elsewhere"))
    found = taken("import faraway")
    assert not found.files
    assert "faraway" in found.warnings[0]
    assert "lies outside of the project folder" in found.warnings[0]


def test_a_script_has_the_modules_of_its_own_folder_first(root: Path):
    write(root, {"jobs/helpers.py": "mine = 1", "src/helpers.py": "other = 1"})
    place = place_of(root / "jobs", root)
    found = collect("import helpers", place, search=[root / "jobs", root])
    assert set(found.files) == {"project/jobs/helpers.py"}
    assert found.project is not None
    assert (found.project.cwd, found.project.paths) == (".", ("jobs",))


def test_without_a_project_the_notebooks_folder_is_the_root(tmp_path: Path):
    assert place_of(tmp_path).root == tmp_path


def test_a_file_that_changed_after_the_kernel_imported_it_is_told_until_it_is_loaded_again(root: Path):
    write(root, {"src/helpers.py": "width = 1"})
    kernel = Imported()
    kernel.look()
    helpers = importlib.import_module("helpers")
    kernel.look()
    modules = taken("import helpers").modules
    assert list(kernel.changed(modules)) == []
    write(root, {"src/helpers.py": "width = 200"})
    (said,) = kernel.changed(modules)
    assert said.startswith("helpers.py has changed since this kernel imported it: the job gets the file as it is now")
    importlib.reload(helpers)
    assert list(kernel.changed(modules)) == []


def test_a_file_that_autoreload_has_loaded_again_is_not_told(root: Path):
    write(root, {"src/helpers.py": "def width():\n    return 1\n"})
    shell, kernel = InteractiveShell.instance(), Imported()

    def ran(line: str) -> object:
        result = shell.run_cell(line).result
        kernel.look()
        return result

    try:
        ran("%load_ext autoreload\n%autoreload 2")
        assert ran("import helpers\nhelpers.width()") == 1
        ran("pass")  # after which functions are updated in place
        modules = taken("import helpers").modules
        write(root, {"src/helpers.py": "def width():\n    return 200\n"})
        os.utime(root / "src/helpers.py", (2_000_000_000, 2_000_000_000))
        assert list(kernel.changed(modules))  # no cell has run since
        assert ran("helpers.width()") == 200
        assert list(kernel.changed(modules)) == []
    finally:
        shell.clear_instance()


@pytest.mark.parametrize(
    "line",
    [
        "sys.path.insert(0, '../lib')",
        "sys.path.append(os.path.join(os.path.dirname(__file__), '..', 'lib'))",
        "sys.path += [str(Path(__file__).parent / '..' / 'lib')]",
    ],
)
def test_a_scripts_own_changes_of_the_module_path_are_read(root: Path, line: str):
    write(root, {"jobs/train.py": "", "lib/deep.py": ""})
    source = f"import sys, os\nfrom pathlib import Path\n{line}\nimport deep, not_there_yet"
    found = collect(source, place_of(root / "jobs", root), search=[root / "jobs", root])
    assert set(found.files) == {"project/lib/deep.py"}
    assert not found.problems
    assert found.warnings == (
        "line 4 imports not_there_yet, which this Python does not have: "
        "what is put into sys.path is known only when it runs",
    )


def test_names_that_no_archive_holds_are_told(root: Path):
    write(root, {"src/nets/__init__.py": "", "src/nets/a\\b.txt": ""})
    (root / "src" / "nets" / os.fsdecode(b"caf\xe9.txt")).write_text("")
    write(root, {"src/nets/größe ✓.txt": "fine"})
    found = taken("import nets")
    assert sorted(problem.message.partition("nets/")[2] for problem in found.problems) == [
        "a\\\\b.txt' has a name that no archive can hold: rename it",
        "caf\\udce9.txt' has a name that no archive can hold: rename it",
    ]
    assert found.files["project/src/nets/größe ✓.txt"] == b"fine"


def test_pipes_are_passed_over_and_a_folder_that_may_not_be_listed_is_told(root: Path, monkeypatch: pytest.MonkeyPatch):
    write(root, {"src/nets/__init__.py": "", "src/nets/closed/x.txt": ""})
    os.mkfifo(root / "src/nets/pipe")
    assert names("import nets") == {"src/nets/__init__.py", "src/nets/closed/x.txt"}
    listed = os.scandir

    def scandir(folder: Path) -> object:
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert said("import nets") == "src/nets/closed cannot be read: Permission denied"


def test_of_files_in_whose_place_a_job_has_remote_data_only_modules_travel(root: Path):
    write(root / "notebooks", {"data/a.csv": "1", "data/__init__.py": "", "data/readers.py": "", "other/a.csv": "1"})
    found = collect("import data.readers", place_of(Path.cwd()), include=["data", "other"], mapped=["./data"])
    names = {each.removeprefix("project/notebooks/") for each in found.files}
    assert names == {"data/__init__.py", "data/readers.py", "other/a.csv"}

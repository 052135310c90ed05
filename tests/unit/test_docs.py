"""Test the documentation: links resolve, diagrams equal the tables in the code, and lists are complete."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import nbformat
import pytest

from jupyter_ext.job.job import Job
from jupyter_ext.magics.commands import HELP
from jupyter_ext.submit.search_summary import bounds_text, parameter_text
from kernel_backend import errors
from kernel_backend.api.routes import ROUTES
from kernel_backend.cli import overview_of, verbs
from kernel_backend.commands.table import GROUPS
from kernel_backend.definition.contract import LOOP_VALUES, ROLES
from kernel_backend.errors import DaylightError
from kernel_backend.spec.assignments import parse_line
from kernel_backend.spec.config_text import to_config
from kernel_backend.spec.options import OPTIONS
from kernel_backend.spec.search_rules import check_search
from tests.support.builders import parse_options

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])
NOTEBOOK = ROOT / "binder" / "quickstart.ipynb"


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def of_pages(wrong: Callable[[Path], Iterable[str]]) -> dict[str, list[str]]:
    """Return what a check finds wrong, by page."""
    return {str(page.relative_to(ROOT)): found for page in PAGES if (found := sorted(wrong(page)))}


def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading() -> None:
    def broken(page: Path) -> Iterator[str]:
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            if not there.exists() or (anchor and anchor not in anchors(there)):
                yield target

    assert len(PAGES) > 80
    assert not of_pages(broken)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))

    def missing(page: Path) -> set[str]:
        code = re.findall(r"`[^`\n]+`|^ {4}.*$", page.read_text(encoding="utf-8"), re.MULTILINE)
        return {target for line in code for target in re.findall(r"\bmake ([a-z-]+)", line)} - targets

    assert not of_pages(missing)


@pytest.mark.parametrize("script", ["states", "architecture", "methods", "verbs"])
def test_what_is_drawn_from_the_code_is_current(script: str) -> None:
    command = [sys.executable, f"docs/draw_{script}.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_module_that_is_named_with_its_folder_exists() -> None:
    roots = [ROOT, ROOT / "kernel_backend", ROOT / "jupyter_ext"]

    def missing(page: Path) -> set[str]:
        named = re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)`", page.read_text(encoding="utf-8"))
        return {each for each in named if not any((root / each).exists() for root in roots)}

    found = of_pages(missing)
    found.pop("CHANGELOG.md", None)  # what files were called
    assert not found


def test_the_reference_lists_every_option_and_no_other() -> None:
    listed = re.findall(r"^\| `(--[a-z-]+)", text("docs/reference/options.md"), re.MULTILINE)
    assert set(listed) == {flag for option in OPTIONS for flag in option.flags}
    assert len(listed) == len(set(listed))


def test_every_space_of_the_reference_is_read_as_one() -> None:
    spaces = text("docs/reference/spaces.md")
    rows = re.findall(r"^\| (`.*?) \|", spaces, re.MULTILINE)
    hung_on = {"opt": "opt=sgd,adam,lion", "blocks": "blocks=1..6", "block.kind": "block.kind=conv,res@each"}
    assert len(rows) > 8
    for row in rows:
        words = {each.partition("=")[0]: each for each in re.findall(r"`([^`]+)`", row)}
        found = {str(each): each for each in parse_line((hung_on | words).values()).space.parameters}
        assert len(found) == len(hung_on | words), row


def test_the_lines_of_the_guide_about_ranges_are_read() -> None:
    page = text("docs/guides/search.md")
    lines = [
        line.split() for line in re.findall(r"^    (?:%%dlsubmit )?(\S+=\S+,\S+ .*|--search .*)$", page, re.MULTILINE)
    ]
    lines += [words.split() for words in re.findall(r"^    (blocks=.*)$", page, re.MULTILINE)]
    assert len(lines) == 3
    for words in lines:
        options = parse_options(words, "notebook")
        config, space = to_config(options), parse_line(options.words).space
        assert len(space.parameters) == len(options.words)
        if config.search is not None:
            check_search(config, space)
            told = [*map(parameter_text, space.parameters), bounds_text(config, space)]
            assert all(f"# {'' if each.startswith('asha') else '  '}{each}\n" in page for each in told)


def test_the_reference_lists_every_verb_of_the_command_line_and_no_other() -> None:
    listed = re.findall(r"^\| \[`daylight (\w+)`\]", text("docs/reference/commands.md"), re.MULTILINE)
    assert listed == list(dict.fromkeys(listed))
    assert set(listed) == set(verbs())


def test_the_reference_lists_every_verb_of_the_magic_and_no_other() -> None:
    listed = re.findall(r"^\| `%dl (\w+)", text("docs/reference/magics.md"), re.MULTILINE)
    helped = re.findall(r"^  (\w+)", HELP, re.MULTILINE)
    assert set(listed) == set(helped)


def test_the_help_lists_each_verb_once_in_one_group() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(verbs())
    assert all(len(line) <= 100 for line in [*HELP.splitlines(), *overview_of(verbs().values()).splitlines()])


def test_the_reference_lists_everything_that_a_job_can_do() -> None:
    assert ".. autoclass:: Job\n   :members:\n   :inherited-members:\n" in text(
        "docs/reference/api.md"
    )  # all that have a docstring
    assert all(inspect.getdoc(each) for name, each in inspect.getmembers(Job) if not name.startswith("_"))


def test_the_reference_lists_every_route_and_method_and_no_other() -> None:
    rows = re.findall(r"^\| `([A-Z]+) (/[^`?]*)", text("docs/reference/http.md"), re.MULTILINE)
    assert set(rows) == {(method, route.path) for route in ROUTES for method in route.operations}


def test_the_reference_lists_every_role_and_loop_value() -> None:
    words = text("docs/reference/definition.md")
    roles, values = words.split("| loop value |")
    assert set(re.findall(r"^\| `(\w+)`", roles, re.MULTILINE)) == set(ROLES)
    assert set(re.findall(r"`(\w+)`", words)) >= {*ROLES, *LOOP_VALUES}
    assert set(re.findall(r"`(\w+)`", values)) >= LOOP_VALUES


def test_the_reference_lists_every_error_with_its_status() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", text("docs/reference/errors.md"), re.MULTILINE)
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, DaylightError)]
    assert sorted(rows) == sorted((each.__name__, str(each.http_status)) for each in classes)


def test_the_glossary_has_each_word_once_and_no_more_than_sixty() -> None:
    words = re.findall(r"^\| ([a-z][^|]*) \|", text("docs/reference/glossary.md"), re.MULTILINE)[1:]
    assert words == sorted(set(words))
    assert len(words) <= 60


def test_every_page_that_the_code_names_exists() -> None:
    folders = ("benchmarks", "jupyter_ext", "kernel_backend", "labextension/src", "scripts", "tests")
    files = [
        file for folder in folders for file in (ROOT / folder).rglob("*.*") if file.suffix in (".py", ".ts", ".tsx")
    ]
    named = re.findall(r"\bdocs/[a-z/_-]+\.(?:md|py|ipynb)", "\n".join(each.read_text() for each in files))
    assert len(named) > 10
    assert [each for each in named if not (ROOT / each).exists()] == []


def test_the_readmes_cell_is_a_definition() -> None:
    cells = re.findall(r"```python\n(%%dlsubmit[^\n]*)\n(.*?)```", text("README.md"), re.DOTALL)
    assert cells
    for _, body in cells:
        functions = {node.name for node in ast.parse(body).body if isinstance(node, ast.FunctionDef)}
        assert {"model", "train_data", "loss"} <= functions
        assert functions & set(ROLES)


def test_the_quickstart_is_committed_without_outputs_and_with_plain_prose() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize("name", ["quickstart", "search", "architectures"])
def test_a_notebook_of_the_gallery_is_that_of_binder_with_its_outputs(name: str) -> None:
    source, shown = (
        nbformat.read(ROOT / folder / f"{name}.ipynb", as_version=4) for folder in ("binder", "docs/tutorials")
    )
    assert [each.source for each in shown.cells] == [
        each.source.replace("](../docs/", "](../") for each in source.cells
    ]
    assert all(each.execution_count for each in shown.cells if each.cell_type == "code")

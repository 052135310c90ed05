"""Test the records of training forms, and forms that other packages add."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from jupyter_ext.magics.notebook_part import notebook_part
from kernel_backend.definition.form import TrainingForm
from kernel_backend.definition.forms.registry import BUILT_IN, form_named, problems
from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse, parse_snapshot
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config
from tests.plugins import IGNITE, importable, install, written
from tests.support.builders import snapshot

CELL = """
from ignite.engine import Engine
lr = 0.1
trainer = Engine(lambda engine, batch: lr)
trainer.run([1, 2], max_epochs=3)
"""
GOOD = """
from kernel_backend.definition.form import TrainingForm
FORM = TrainingForm(name="mine", recognises=lambda source: False, parse=None, training="there.is:None")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    install(IGNITE, site)
    return site


@pytest.fixture
def ignite(installed: Path) -> Iterator[None]:
    with importable(installed):
        yield


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """Provide a folder with packages that this process can import, and empty caches."""
    with importable(tmp_path / "site"):
        yield tmp_path / "site"


def form(site: Path, package: str, text: str, name: str) -> None:
    written(site, package, text, name, group="daylight.training_forms", object="FORM")


@pytest.mark.parametrize("form", BUILT_IN, ids=lambda form: form.name)
def test_what_a_record_names_is_there(form: TrainingForm) -> None:
    module, _, name = form.training.partition(":")
    found = find_spec(module)  # not imported, as some import a framework
    assert found is not None
    assert found.origin is not None
    tree = ast.parse(Path(found.origin).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert set(form.refuses) <= set(Config.model_fields)
    assert bool(form.refuses) == bool(form.loop)
    assert form_named(form.name) is form


@pytest.mark.usefixtures("ignite")
def test_a_cell_has_a_form_of_a_package_and_its_snapshot_keeps_it() -> None:
    definition = parse(CELL)
    assert definition.summary == "ignite: trainer.run (line 5)"
    assert (definition.defaults, definition.settings) == ({"lr": 0.1}, {"epochs": 3})
    assert form_named("ignite").package == "daylight-ignite 1.0"
    kept = snapshot(CELL).model_copy(update={"form": "ignite"})
    assert parse_snapshot(CELL, kept) == definition
    with pytest.raises(InvalidDefinition, match="--slots 2: an engine of ignite trains on one slot"):
        check_options(definition, Config(slots=2))
    with pytest.raises(InvalidDefinition, match=r"an engine of ignite takes the steps: leave it out.*clip_grad_norm"):
        check_options(definition, Config(clip=1.0))


@pytest.mark.usefixtures("ignite")
def test_the_notebook_runs_what_stands_above_the_training() -> None:
    definition = parse(CELL)
    found = notebook_part(CELL, f"%%dlsubmit\n{CELL}", definition, ast.parse(CELL), str)
    assert found.code.strip().splitlines()[-1].startswith("trainer = Engine")
    assert found.recorded is not None
    assert "run(" not in found.code + found.recorded


@pytest.mark.usefixtures("ignite")
def test_a_cell_that_was_submitted_without_the_package_keeps_the_form_that_it_had() -> None:
    with pytest.raises(InvalidDefinition, match="model"):
        parse_snapshot(CELL, snapshot(CELL))
    functions = "def model(): pass\ndef train_data(): pass\ndef loss(output, target): pass\n"
    assert parse(functions).form == "functions"


def test_a_snapshot_whose_package_is_gone_is_refused_with_what_to_install() -> None:
    kept = snapshot(CELL).model_copy(update={"form": "ignite"})
    with pytest.raises(InvalidDefinition, match="the training form ignite of another package: install that package"):
        parse_snapshot(CELL, kept)


def test_a_broken_package_spoils_its_own_form_alone(site: Path) -> None:
    form(site, "torn-form", "import nothing_of_this_name", "torn")
    form(site, "odd-form", "FORM = 'odd'", "odd")
    form(site, "other-form", GOOD, "other")
    form(site, "shadow-form", GOOD, "keras")
    form(site, "one-form", GOOD, "mine")
    form(site, "two-form", GOOD, "mine")
    assert parse("def train(run): pass").form == "loop"
    assert parse("def model(): pass\ndef train_data(): pass\ndef loss(output, target): pass").form == "functions"
    said = "\n".join(problems())
    assert "form torn of package torn-form 1.0 cannot be used: torn_form:FORM cannot be imported: ModuleNotF" in said
    assert "form odd of package odd-form 1.0 cannot be used: odd_form:FORM is str, not a TrainingForm" in said
    assert "other_form:FORM is a form named mine" in said
    assert "the training form keras of package shadow-form 1.0 is not used: a built-in form has this name" in said
    assert "both have a training form mine: uninstall all but one" in said
    assert form_named("keras").package == ""

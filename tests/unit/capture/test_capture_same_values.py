"""A job sees what the kernel saw: the notebooks of the collection, each in a real IPython and as a captured module."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from jupyter_ext.capture import Capture, capture_cell
from jupyter_ext.submit.process import notebook_process
from kernel_backend.model.snapshot import Process
from kernel_backend.runner.definition.process_check import Difference, ProcessCheck
from kernel_backend.snapshots.process import cell_of
from tests.notebooks.collection import Notebook, notebooks
from tests.notebooks.kernel import apart, execute, load, shell

pytestmark = pytest.mark.many

COLLECTION = notebooks()


@pytest.fixture(scope="module", autouse=True)
def imported_once():
    """Import once what the notebooks need and each forked process would import anew."""
    for name in ("numpy", "pandas", "torch", "sklearn.linear_model", "sklearn.preprocessing", "matplotlib.pyplot"):
        if importlib.util.find_spec(name.split(".")[0]):
            importlib.import_module(name)


def in_kernel(notebook: Notebook) -> tuple[str, Capture, Process]:
    """The value in the notebook, and what is captured and recorded right before."""
    kernel = shell()
    recorder = execute(kernel, notebook.cells)
    capture = capture_cell(recorder.cells, notebook.target)
    process = notebook_process(capture, {})
    kernel.run_cell(notebook.target)
    return repr(kernel.user_ns["result"]()), capture, process


def in_job(capture: Capture, process: Process) -> tuple[str, list[Difference]]:
    """The value in the job, and what is set there otherwise."""
    check = ProcessCheck(process, cell_of(capture.source, capture.roles_from))
    names = load(capture.source, capture.roles_from, check.cell_begins)
    differences = check.differences()
    return repr(names["result"]()), differences


@pytest.mark.parametrize("notebook", COLLECTION, ids=lambda each: each.name)
def test_the_job_sees_what_the_kernel_saw(notebook: Notebook):
    seen, capture, process = apart(lambda: in_kernel(notebook))
    assert capture.problems == ()
    assert apart(lambda: in_job(capture, process)) == (seen, []), capture.source


def test_the_collection_is_large_and_names_each_case_once():
    names = [each.name for each in COLLECTION]
    assert len(names) == len(set(names))
    assert len(names) >= 150

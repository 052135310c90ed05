"""Test that warnings name the user's lines, as in plain Python, whichever function of ours stands between.

All are raised in one process of its own, as pytest replaces the function that shows warnings.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KERAS = {**os.environ, "KERAS_BACKEND": "torch"}
RUNNER = Path(__file__).parents[3] / "kernel_backend/runner"
# For each function of ours that stands in for another, code that makes `wrapped` of `function`, and its arguments.
WRAPPERS = {
    "native_opens.told": "wrapped = native_opens._telling(function, lambda *_: ('file', 0))",
    "timing.intercept.timed": "wrapped = intercept._timed_backward(function, StepClock())",
    "timing.intercept.timed (fetch)": "wrapped = intercept._timed_fetch(function, StepClock())",
    "forms.keras.gradients.averaged": "wrapped, given = averaging(function), ([],)",
    "forms.keras.metrics.checked": "wrapped, given = _of_samples('m', function), (1, 2)",
    "forms.script.curves.trackers.told": "wrapped = before(function)",
    "forms.script.iterators.made": "wrapped = generator_function(function)",
}
PROGRAM = """
import json, sys, types, warnings
import torch
from kernel_backend.runner import native_opens
from kernel_backend.runner.forms.keras.gradients import StepGradients
from kernel_backend.runner.forms.keras.metrics import _of_samples
from kernel_backend.runner.forms.script.curves.trackers import Trackers
from kernel_backend.runner.forms.script.iterators import generator_function
from kernel_backend.runner.timing import intercept
from kernel_backend.runner.timing.clock import StepClock
from kernel_backend.runner.warned_lines import warn_of_users_lines
seen = []
warnings.simplefilter("always")
warnings.showwarning = lambda message, category, filename, lineno, *_: seen.append((filename, lineno))
warn_of_users_lines()

class Result(list):
    shape, _num_workers = (1,), 0

def before(function):
    trackers, owner = Trackers(len, lambda read, *given: read(*given)), types.SimpleNamespace(log=function)
    trackers._before(owner, "log", lambda *_: ())
    return owner.log

def averaging(function):
    gradients = StepGradients(None, lambda: 1.0, torch.device("cpu"))
    gradients._averages = lambda *_: []
    return gradients.applied("m", types.SimpleNamespace(apply=function, _trainable_variables=[]))

def outer():
    return called()
def called():
    return wrapped(*given)

def function(*_, **__):
    warnings.warn("here", stacklevel=level)
    return Result()

found = {}
for name, source in json.loads(sys.argv[1]).items():
    found[name] = []
    for level in (1, 2, 3):
        wrapped, given = function, (Result(),)
        if "StepClock" in source:
            given = (torch.ones(1),) if "backward" in source else given
        exec(source)
        seen.clear()
        outer()
        found[name] += seen
print(json.dumps(found))
"""


@functools.cache
def places() -> dict[str, list[tuple[str, int]]]:
    """Return file and line of the warnings of levels 1, 2 and 3 through each wrapper, and through none ("")."""
    given = json.dumps({"": "pass", **WRAPPERS})
    done = subprocess.run([sys.executable, "-c", PROGRAM, given], env=KERAS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_warning_through_one_of_our_functions_names_the_line_of_plain_python(name: str) -> None:
    assert [file for file, _ in places()[""]] == ["<string>"] * 3
    assert places()[name] == places()[""]


def test_every_function_of_ours_that_stands_in_for_another_is_tested() -> None:
    names = {each.partition(" ")[0] for each in WRAPPERS}
    wrappers = {
        ".".join([*path.relative_to(RUNNER).with_suffix("").parts, node.name])
        for path in RUNNER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and any("wraps" in ast.unparse(each) for each in node.decorator_list)
    }
    assert wrappers == names


def test_a_warning_of_c_code_and_one_without_a_users_caller_name_the_users_line_too() -> None:
    program = """
import sys, types, warnings
from kernel_backend.runner import warned_lines
shown = []
warnings.showwarning = lambda message, category, filename, lineno, *_: shown.append((filename, lineno))
warned_lines.warn_of_users_lines()
source = "def ours(f):\\n    return f()\\n"
exec(compile(source, warned_lines._OURS + "x.py", "exec"))
ours(lambda: warnings.warn("first", stacklevel=2))
warnings.showwarning("second", UserWarning, warned_lines._OURS + "x.py", 2)
def user():
    warnings.warn("third", stacklevel=5)
ours(user)
print(shown)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[('<string>', 9), ('<string>', 10), ('<string>', 13)]\n"

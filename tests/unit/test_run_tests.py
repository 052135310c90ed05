"""Test that a test which fails is run once more by itself, and is named as flaky if it passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_tests.py"
TESTS = """
import pathlib, pytest

def test_passes():
    pass

@pytest.mark.parametrize("name", ["a b/c", "d"])
def test_passes_alone(name):
    mark = pathlib.Path(name.replace("/", "-"))
    before = mark.exists()
    mark.touch()
    assert before
"""


def run(folder: Path, tests: str, *options: str) -> tuple[int, list[str], list[str]]:
    """Run a file of tests; return the exit code, the last lines, and what build/flaky.txt names."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(tests)
    # Each of the plugins that the tests of Daylight use costs a second here.
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, str(SCRIPT), *options]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert not done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("run_tests: f")]
    return done.returncode, told, (folder / "build" / "flaky.txt").read_text().splitlines()


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "two processes"])
def test_tests_that_pass_alone_are_named_and_the_run_passes(tmp_path, options):
    code, told, flaky = run(tmp_path, TESTS, *options)
    # Of two processes, either may be the first to fail.
    assert sorted(flaky) == ["test_it.py::test_passes_alone[a b/c]", "test_it.py::test_passes_alone[d]"]
    assert (code, told) == (0, [f"run_tests: flaky, as it passed alone: {test}" for test in flaky])


def test_a_test_that_fails_twice_fails_the_run(tmp_path):
    code, told, flaky = run(tmp_path, TESTS + "\ndef test_fails():\n    assert False\n")
    assert (code, told[0], len(flaky)) == (1, "run_tests: failed twice: test_it.py::test_fails", 2)


def test_a_test_that_is_skipped_when_it_runs_alone_has_not_passed(tmp_path):
    tests = "import pathlib, pytest\nmark = pathlib.Path('mark')\n\ndef test_fails_then_skips():\n"
    tests += "    if mark.exists():\n        pytest.skip('has run')\n    mark.touch()\n    assert False\n"
    assert run(tmp_path, tests)[0] == 1


@pytest.mark.parametrize(
    ("tests", "code"),
    [
        ("import missing_module\n", 2),
        ("import pytest\n@pytest.mark.parametrize('n', range(21))\ndef test_fails(n):\n    assert False\n", 1),
        ("def test_passes():\n    pass\n", 0),
    ],
    ids=["a file that cannot be imported", "many that fail", "none that fails"],
)
def test_nothing_is_run_again(tmp_path, tests, code):
    assert run(tmp_path, tests) == (code, [], [])

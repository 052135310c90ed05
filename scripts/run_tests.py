"""Run pytest, and run each test that failed once more by itself: `python scripts/run_tests.py [PYTEST'S ARGUMENTS]`.

A test that passes alone is flaky: it is named in the last lines and in build/flaky.txt, and the run passes. A test that
fails twice fails the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

FLAKY = Path("build/flaky.txt")
MOST = 20  # when more tests than these fail, the cause is no coincidence


def main(arguments: list[str]) -> int:
    """Run the tests and return pytest's exit code; 0 if all tests that failed pass alone."""
    FLAKY.parent.mkdir(exist_ok=True)
    FLAKY.write_text("")
    with tempfile.TemporaryDirectory() as cache:
        code = _pytest(*arguments, "-o", f"cache_dir={cache}")
        failed = _failed(Path(cache))
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed) <= MOST:
        return code
    print(f"\nrun_tests: {len(failed)} failed; each is run once more by itself", flush=True)
    twice = [test for test in failed if not _passes_alone(test)]
    flaky = [test for test in failed if test not in twice]
    FLAKY.write_text("".join(f"{test}\n" for test in flaky))
    for test in twice:
        print(f"run_tests: failed twice: {test}")
    for test in flaky:
        print(f"run_tests: flaky, as it passed alone: {test}")
    return code if twice else 0


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def _passes_alone(test: str) -> bool:
    """Run one test in a process of its own; return True if it passes, and False also if it is skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        if _pytest("-p", "no:cacheprovider", f"--junitxml={report}", test) != pytest.ExitCode.OK:
            return False
        return ElementTree.parse(report).find(".//skipped") is None


def _failed(cache: Path) -> list[str]:
    """Return the IDs of the tests that pytest's cache names as failed."""
    found = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(found.read_text())) if found.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

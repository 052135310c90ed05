"""Test that programs of users, which the service asks for their packages, end with what they may print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_backend.environments import bounded_process, present
from kernel_backend.errors import NoEnvironment


def test_what_a_program_prints_comes_back_with_its_exit_code() -> None:
    code = "import sys; print(sys.stdin.read()); print('no', file=sys.stderr); sys.exit(3)"
    done = bounded_process.run([sys.executable, "-c", code], timeout=60.0, input="yes")
    assert (done.returncode, done.stdout, done.stderr) == (3, "yes\n", "no\n")


def test_a_program_that_prints_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_process, "MOST", 2**20)
    for stream in ("", " >&2"):
        with pytest.raises(OSError, match="it prints more than 1 MiB"):
            bounded_process.run(["sh", "-c", f"yes{stream}"], timeout=60.0)


def test_a_program_that_closes_its_output_and_stays_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        bounded_process.run(["sh", "-c", "exec >&- 2>&-; sleep 600"], timeout=0.2)


@pytest.mark.parametrize("answer", ["", "[" * 100_000, '"x"', "{}", '{"python": 1}'])
def test_an_interpreter_that_answers_anything_has_no_environment(answer: str, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(answer)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    python.chmod(0o755)
    with pytest.raises(NoEnvironment, match="does not say what it holds"):
        present.present(python)

"""A launcher whose ranks stand still ends them, and says which one and where; their logs are followed meanwhile."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.experiment import LOG_POLICIES, Config
from kernel_backend.model.job import Job
from kernel_backend.model.reports import AttemptResult
from tests.builders import share

ROOT = Path(__file__).parents[2]


@pytest.fixture
def python(tmp_path: Path) -> str:
    """An interpreter that runs the stand-in where a gang asks for the runner."""
    script = tmp_path / "python"
    standin = Path(__file__).with_name("standin_steps.py")
    script.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{ROOT}"\n'
        f'if [ "$3" = kernel_backend.runner ]; then exec {sys.executable} {standin} "$4"; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


@pytest.fixture
def launched(tmp_path: Path, python: str):
    """`launched(way=...)`: two ranks of ten steps, the second of which stops at step 4; the launcher's record."""

    def launch(way: str, **params) -> tuple[AttemptFolder, AttemptResult]:
        folder = AttemptFolder(tmp_path / "attempt")
        job = Job(
            experiment=1,
            trial=1,
            attempt=1,
            config=Config(slots=2, threads=1, hang_timeout=1.0),
            params={"steps": 60, "stop": 4, "only_rank": 1, "way": way} | params,
            placement=(share(),),
            python=python,
            cwd=str(tmp_path),
            code=str(Path(__file__).parent),  # so that the stand-in counts as the user's own
            snapshot="0" * 64,
            checkpoints=str(tmp_path / "checkpoints"),
            home=str(tmp_path),
        )
        folder.prepare(job, "token")
        environment = {**os.environ, "DAYLIGHT_WARM": "0", "DAYLIGHT_HOME": str(tmp_path)}
        command = [python, "-P", "-m", "kernel_backend.launch", str(folder.path)]
        subprocess.run(command, env=environment, check=True, timeout=60, stdin=subprocess.DEVNULL)
        result = folder.result()
        assert result is not None
        return folder, result

    return launch


def test_a_rank_that_sleeps_is_named_with_its_own_line_and_the_stacks_of_all(launched):
    folder, result = launched("sleep")
    failure = result.failure
    assert (result.outcome, failure.type, failure.rank, failure.step) == ("failed", "Hang", 1, 4)
    assert failure.message.startswith("rank 1 made no progress for 1.")
    assert "s in step 4: it stands at standin_steps.py line " in failure.message
    assert failure.message.endswith(", in asleep")
    assert (failure.frames[-1].function, failure.frames[-1].text) == ("asleep", "time.sleep(3600)")
    assert failure.frames[0].function == "<module>"
    assert failure.traceback.index("rank 1, idle") < failure.traceback.index("rank 0, idle")
    assert result.exit_codes == (-9, -9)
    assert (folder.path / "stacks-0.log").read_text().count("most recent call first") == 2


def test_a_rank_that_is_stuck_in_native_code_shows_where_all_the_same(launched):
    _, result = launched("native")
    assert (result.failure.type, result.failure.rank) == ("Hang", 1)
    assert result.failure.frames[-1].function == "<lambda>"
    assert 're.match("(a+)+$"' in result.failure.frames[-1].text


def test_a_frozen_rank_does_not_answer_and_is_killed(launched):
    _, result = launched("freeze")
    assert (result.failure.type, result.failure.rank, result.failure.step) == ("Hang", 1, 4)
    assert result.failure.message.endswith("it does not answer, as a process does that is stopped or waits for a disk")
    assert "(no answer)" in result.failure.traceback
    assert result.exit_codes[1] == -9


def test_a_killed_rank_is_named_with_the_step_that_it_took(launched):
    _, result = launched("kill")
    assert (result.failure.type, result.failure.rank, result.failure.step) == ("SIGKILL", 1, 4)


def test_ranks_that_get_on_are_left_alone_however_short_the_time_out(launched):
    _, result = launched("none")
    assert (result.outcome, result.failure, result.matched) == ("ok", None, ())


def test_a_line_that_a_policy_asks_for_is_in_the_record_with_its_rank(launched):
    _, result = launched("kill", say="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    (match,) = result.matched
    assert (match.pattern, match.action, match.rank) == (LOG_POLICIES[0].pattern, "cancel_retries", 1)
    assert match.line.startswith("torch.OutOfMemoryError: CUDA out of memory.")

"""Test a service that dies while sbatch runs: the next submission waits for that sbatch, and finds its job."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from tests.engines.contract import interpreter, specifications
from tests.support.slurm import Slurm
from tests.support.world import until

HELD = Pool(name="gpu", settings=PoolSettings(engine="slurm", extra=("--hold",)))
SUBMIT = """
import asyncio, sys
from pathlib import Path
from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.launch.launch_spec import LaunchSpec
home, pool, job = Path(sys.argv[1]), Pool.model_validate_json(sys.argv[2]), LaunchSpec.model_validate_json(sys.argv[3])
asyncio.run(SlurmEngine(home, pool, "interrupted").submit(job, "secret"))
"""


def test_a_gang_whose_submission_was_interrupted_is_submitted_once(
    site: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home, real = tmp_path / "home", shutil.which("sbatch")
    slow = tmp_path / "bin" / "sbatch"
    slow.parent.mkdir()
    # It has begun, and goes on once the process that called it is dead.
    waits = f"touch {tmp_path}/begun\nuntil [ -e {tmp_path}/go ]; do sleep 0.1; done\n"
    slow.write_text(f'#!/bin/sh\n{waits}exec {real} "$@"\n')
    slow.chmod(0o755)
    job = specifications(tmp_path, home, interpreter(tmp_path))()
    command = [sys.executable, "-c", SUBMIT, str(home), HELD.model_dump_json(), job.model_dump_json()]
    first = subprocess.Popen(command, env={**os.environ, "PATH": f"{slow.parent}:{os.environ['PATH']}"})
    until((tmp_path / "begun").exists, "sbatch runs")
    first.kill()
    first.wait()

    async def again() -> None:
        engine = SlurmEngine(home, HELD, "interrupted")
        submitting = asyncio.create_task(engine.submit(job, "secret"))
        await asyncio.sleep(1.0)
        assert not submitting.done()
        (tmp_path / "go").touch()
        await submitting
        found = site.run("squeue", "-h", "-n", f"daylight-{job.id}", "-o", "%i %k").splitlines()
        assert [line.split()[1].startswith("daylight:interrupted:") for line in found] == [True], found
        await engine.kill(job.id)

    asyncio.run(again())

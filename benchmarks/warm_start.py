"""Measure the time from a launcher's start to its ranks' first messages, forked from a forkserver or started cold.

    python benchmarks/warm_start.py [--runs 5]

Both are measured alternately on the same machine. `first word`: rank 0 reports that the training begins (definition
loaded, ranks connected, model and optimizer created). `first use`: the launcher must start the forkserver first. The
memory of each rank is printed as what it alone uses, and with the pages that it shares.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil

from kernel_backend.definition.parse import parse
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.experiment import Config
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Report
from kernel_backend.model.resources import Share
from tests.support.spools import read_after
from tests.support.world import DEFINITION, World, until


def job(home: Path, number: int, slots: int, backend: str) -> LaunchSpec:
    """Create an attempt whose training does not end during the measurement."""
    code = home / "code"
    code.mkdir(parents=True, exist_ok=True)
    (code / "definition.py").write_text(DEFINITION)
    return LaunchSpec(
        experiment=1,
        trial=number,
        attempt=1,
        config=Config(slots=slots, backend=backend, epochs=1000, batch_size=8, threads=1),
        params=parse(DEFINITION).bind({"pause": 0.2}),
        placement=(Share(node="here", kind="cpu", address="127.0.0.1", slots=tuple(range(slots))),),
        python=sys.executable,
        cwd=str(home),
        code=str(code),
        snapshot="0" * 64,
        checkpoints=str(home / "checkpoints" / str(number)),
        home=str(home),
    )


def launch(job: LaunchSpec, warm: bool) -> tuple[float, float, list[tuple[int, int]]]:
    """Return the seconds from a launcher's start to rank 0's first message and first step, and each rank's MiB."""
    folder = AttemptFolder(Path(job.home) / "attempts" / str(job.id))
    folder.prepare(job, "no service listens")
    environment = {**os.environ, "DAYLIGHT_HOME": job.home, "DAYLIGHT_WARM": "1" if warm else "0"}
    command = [sys.executable, "-P", "-m", "kernel_backend.launch", str(folder.path)]
    begun = time.time()
    with folder.launcher_log.open("ab") as log:
        launcher = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=job.home)
    step = until(
        lambda: next((each for each in read_after(folder.spool, 0) if isinstance(each, Report)), None), "a step"
    )
    word = read_after(folder.spool, 0)[0]
    pids = json.loads((folder.path / "ranks.json").read_bytes()).values()
    memory = [psutil.Process(pid).memory_full_info() for pid in pids]
    launcher.kill()
    launcher.wait()
    until(lambda: not any(_alive(pid) for pid in pids), "its ranks end")
    return word.at - begun, step.at - begun, [(each.uss >> 20, each.rss >> 20) for each in memory]


def _alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def measure(home: Path, slots: int, backend: str, runs: int) -> None:
    """Print one table row: medians of `runs` pairs."""
    numbers = iter(range(1, 1000))

    def once(warm: bool) -> tuple[float, float, list[tuple[int, int]]]:
        return launch(job(home, next(numbers), slots, backend), warm)

    first = once(warm=True)
    pairs = [(once(warm=False), once(warm=True)) for _ in range(runs)]
    cold, warm = (tuple(statistics.median(pair[side][i] for pair in pairs) for i in (0, 1)) for side in (0, 1))
    print(
        f"{slots} rank(s), {backend}: "
        f"first word cold {cold[0]:.2f} s, warm {warm[0]:.2f} s ({warm[0] / cold[0]:.2f} x), "
        f"first use {first[0]:.2f} s; first step cold {cold[1]:.2f} s, warm {warm[1]:.2f} s; "
        f"memory of its own of all, MiB: cold {pairs[-1][0][2]}, warm {pairs[-1][1][2]}"
    )


def main() -> None:
    """Measure one and two ranks, each with a forkserver of its own."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=5)
    runs = arguments.parse_args().runs
    for slots, backend in ((1, "torch"), (2, "torch"), (2, "horovod")):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "home"
            home.mkdir()
            try:
                measure(home, slots, backend, runs)
            finally:
                World(home).close()


if __name__ == "__main__":
    main()

"""Measure the time from a fault (a rank that is killed or hangs) to the next step, against torchrun's restarts.

    python benchmarks/fault_time.py [--runs 5]

Two ranks on the CPU, steps of 50 ms, a checkpoint every 4 steps, with Daylight and with torchrun alternately.
torchrun's script saves by `torch.save` and loads what it finds, as torch's tutorial on fault tolerance does. `gone` is
when the last rank of the broken gang has ended, `again` when the first step after the fault has been taken. In a hang
one rank sleeps while the other waits for its gradients.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from torch.distributed.constants import default_pg_timeout

from kernel_backend.model.reports import Report
from tests.support.spools import read_after
from tests.support.world import DEFINITION, World, until

HANG = """
import os
seen = []
def loss(output, target, pause=0.0, marker=""):
    time.sleep(pause)
    seen.append(1)
    if len(seen) == 14 and os.environ["RANK"] == "1" and not os.path.exists(marker):
        with open(marker, "w") as file:
            file.write(str(time.time()))
        time.sleep(10_000)
    return nn.functional.mse_loss(output, target)
"""
PATIENCE_S = 60.0
OPTIONS = {"checkpoint_every": {"steps": 4}, "backend": "torch", "epochs": 1000}

TORCHRUN = """
import os, sys, time, torch, torch.distributed as dist
from torch import nn
folder = sys.argv[1]
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
optimizer, step, place = torch.optim.AdamW(model.parameters()), 0, os.path.join(folder, "checkpoint.pt")
if os.path.exists(place):
    saved = torch.load(place)
    model.load_state_dict(saved["model"]), optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
while True:
    time.sleep(0.05)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(torch.randn(4, 8)), torch.randn(4, 1)).backward()
    optimizer.step()
    step += 1
    if dist.get_rank() == 0:
        if step % 4 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, place + ".new")
            os.replace(place + ".new", place)
        with open(os.path.join(folder, "steps"), "a") as file:
            file.write(f"{time.time()}\\n")
    with open(os.path.join(folder, f"rank-{dist.get_rank()}"), "w") as file:
        file.write(str(os.getpid()))
"""


class Times(NamedTuple):
    """Seconds from a fault to its effects; infinite if the training did not continue within a minute.

    torchrun's workers may not continue in time: their restarted process groups do not always find each other, and each
    try takes some seconds.
    """

    gone: float
    again: float


def killed(world: World) -> Times:
    """Kill rank 1 of Daylight's training between two checkpoints; return the times."""
    number = world.submit(**OPTIONS, pause=0.05).experiment.number
    world.reached(number, 12)
    time.sleep(random.random() * 0.2)
    ranks, at = world.ranks(), time.time()
    ranks[1].kill()
    until(lambda: not any(map(alive, ranks.values())), "the gang is gone")
    return _afterwards(world, number, at, time.time() - at)


def hung(world: World, timeout: float) -> Times:
    """Make rank 1 of Daylight's training hang; return the times."""
    marker = world.home / f"hang-{timeout}-{random.random()}"
    options = OPTIONS | {"hang_timeout": timeout, "marker": str(marker)}
    number = world.submit(DEFINITION + HANG, **options, pause=0.05).experiment.number
    until(marker.exists, "it hangs")
    at = float(marker.read_text())
    ranks = world.ranks()
    until(lambda: not any(map(alive, ranks.values())), "the gang is gone")
    return _afterwards(world, number, at, time.time() - at)


def _afterwards(world: World, number: int, at: float, gone: float) -> Times:
    spool = world.home / "attempts" / f"{number}.1-2" / "spool.jsonl"

    def first() -> float | None:
        records = read_after(spool, 0) if spool.exists() else []
        return next((record.at for record in records if isinstance(record, Report)), None)

    again = until(first, "the next attempt trains")
    world.serve().stop(number)
    world.ended(number)
    return Times(gone, again - at)


@contextlib.contextmanager
def torchrun() -> Iterator[Path]:
    """Start torchrun with two workers, which write their steps' times into the folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(TORCHRUN)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        command += ["--max-restarts=20", str(folder / "train.py"), name]
        with (folder / "log").open("ab") as log:
            agent = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env={**os.environ})
        try:
            yield folder
        finally:
            os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()


def killed_under_torchrun() -> Times:
    """Kill rank 1 of torchrun's training; return the times."""
    with torchrun() as folder:
        steps = folder / "steps"
        until(lambda: steps.exists() and len(steps.read_text().split()) >= 12, "it trains")
        time.sleep(random.random() * 0.2)
        ranks = [psutil.Process(int((folder / f"rank-{rank}").read_text())) for rank in range(2)]
        at = time.time()
        ranks[1].kill()
        until(lambda: not any(map(alive, ranks)), "the gang is gone")
        gone = time.time() - at
        last = [float(each) for each in steps.read_text().split()]
        deadline = at + PATIENCE_S
        while time.time() < deadline:
            now = steps.read_text().split()
            if len(now) > len(last):
                return Times(gone, float(now[len(last)]) - at)
            time.sleep(0.05)
        return Times(gone, math.inf)


def alive(process: psutil.Process) -> bool:
    """Return True while the process runs."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def said(name: str, times: list[Times]) -> None:
    """Print one row of the table."""
    gone, again = (sorted(each[index] for each in times) for index in (0, 1))
    print(
        f"  {name:34} gone after {statistics.median(gone):5.2f} s (most {gone[-1]:5.2f}), "
        f"again after {statistics.median(again):5.2f} s (most {again[-1]:5.2f})",
        flush=True,
    )


def main() -> None:
    """Measure the times after a kill and after a hang, and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="faults of each kind (default: %(default)s)")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "home")
        world.serve()
        try:
            pairs = [(killed(world), killed_under_torchrun()) for _ in range(runs)]
            print("a rank is killed")
            said("Daylight", [ours for ours, _ in pairs])
            said("torchrun", [theirs for _, theirs in pairs])
            ratio = statistics.median(ours.again / theirs.again for ours, theirs in pairs)
            print(f"  Daylight again after {ratio:.2f} x torchrun's time, median of pairs")
            print(f"a rank hangs (torchrun would wait for {default_pg_timeout.total_seconds() / 60:.0f} minutes)")
            for timeout in (3, 5):
                said(f"Daylight, --hang-timeout {timeout}s", [hung(world, timeout) for _ in range(runs)])
        finally:
            world.close()


if __name__ == "__main__":
    main()

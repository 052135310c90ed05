"""Measure a raw training loop as a job: overhead of a step, stall at a checkpoint, rewriting, recognised programs.

    python benchmarks/raw_loop.py --rounds 5

The same program runs by `python program.py` and as a job of one slot, by turns, each on one thread and in a process of
its own; it takes the time of each of its steps by itself, on the wall and of the CPU. A ratio is the median over rounds
of (job / bare).
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_backend import NUMERICS, __version__
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.definition.script.loops import training_loops
from kernel_backend.definition.script.rewrite import rewritten
from kernel_backend.definition.script.signs import signs
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.experiment import Config, parse_cadence
from kernel_backend.model.launch.allocator import allocator_env
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.resources import Share
from kernel_backend.model.snapshot import Environment, Piece, Snapshot
from tests.support.programs import PROGRAMS

STEPS = 300
PROGRAM = """
import json, time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(64 * {steps}, 256), torch.randint(0, 10, (64 * {steps},)))
inner = nn.Linear({width}, {width})
model = nn.Sequential(nn.Linear(256, {width}), nn.ReLU(), inner, nn.ReLU(), nn.Linear({width}, 10))
optimizer = torch.optim.Adam(model.parameters())
times = []
for epoch in range(1):
    for x, y in DataLoader(data, batch_size=64, shuffle=True):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append((time.perf_counter(), time.process_time()))
with open("times.json", "w") as file:
    json.dump(times, file)
"""


class Step(NamedTuple):
    """Record the median time of a step, in milliseconds."""

    wall: float
    cpu: float


def step_of(folder: Path) -> Step:
    """Return the median step times from the file that a program wrote."""
    times = json.loads((folder / "times.json").read_text())[20:]
    return Step(*(_median_ms(clock) for clock in zip(*times, strict=True)))


def _median_ms(clock: Sequence[float]) -> float:
    return 1e3 * statistics.median(after - before for before, after in itertools.pairwise(clock))


def bare(source: str) -> Step:
    folder = Path(tempfile.mkdtemp())
    (folder / "program.py").write_text(source)
    subprocess.run([sys.executable, "program.py"], cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)
    return step_of(folder)


def job(source: str, every: str, rehearse: bool = True) -> tuple[Step, list[dict[str, float]]]:
    """Run the program as a job; return its step time, and the stalls of its checkpoints."""
    folder = Path(tempfile.mkdtemp())
    (folder / "code").mkdir()
    (folder / "code" / "definition.py").write_text(source)
    piece = Piece(cell=1, line=1, count=len(source.splitlines()), cell_line=1)
    environment = Environment(python="3", implementation="CPython", platform="linux", cpu="", cores=1, distributions={})
    snapshot = Snapshot(
        version=__version__,
        numerics=NUMERICS,
        pieces=(piece,),
        roles_from=1,
        contract=CONTRACT,
        environment=environment,
    )
    (folder / "code" / "snapshot.json").write_text(snapshot.model_dump_json())
    spec = LaunchSpec(
        experiment=1,
        trial=1,
        attempt=1,
        config=Config(slots=1, threads=1, checkpoint_every=parse_cadence(every), rehearse=rehearse),
        params={},
        placement=(Share(node="here", kind="cpu", address="127.0.0.1", slots=(0,)),),
        python=sys.executable,
        cwd=str(folder),
        code=str(folder / "code"),
        snapshot="0" * 64,
        checkpoints=str(folder / "checkpoints"),
        home=str(folder),
    )
    attempt = AttemptFolder(folder / "attempt")
    attempt.prepare(spec, "no token")
    command = [sys.executable, "-P", "-m", "kernel_backend.runner", str(attempt.path)]
    environ = {**os.environ, **allocator_env(os.environ), "PYTHONHASHSEED": "0", "PYTHONPATH": sys.path[0]}
    with subprocess.Popen(command, cwd=folder, env=environ, stdin=subprocess.PIPE) as rank:
        if rank.wait():
            raise SystemExit(f"the job failed with code {rank.returncode}")
    records = map(json.loads, attempt.spool.read_text().splitlines())
    return step_of(folder), [each for each in records if each["type"] == "checkpoint"][:-1]  # the last one is awaited


def recognised() -> str:
    found, seconds = 0, []
    for path in PROGRAMS.values():
        tree = ast.parse(path.read_text())
        began = time.process_time()
        loops = training_loops(tree)
        signs(tree, loops)
        rewritten(tree, "", loops)
        seconds.append(time.process_time() - began)
        found += bool(loops)
    times = f"{1e3 * statistics.median(seconds):.1f} ms (at most {1e3 * max(seconds):.1f})"
    return f"recognised: {found} of {len(PROGRAMS)} programs; to find, judge and rewrite their loops: {times} of CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--widths", type=int, nargs="+", default=[512, 1280])
    options = parser.parse_args()
    print(recognised(), flush=True)
    for width in options.widths:
        source = PROGRAM.format(width=width, steps=STEPS)
        alone, ours, rehearsed, unrehearsed = [], [], [], []
        for _ in range(options.rounds):
            alone.append(bare(source))
            ours.append(job(source, "1000h")[0])
            rehearsed.append(job(source, "40steps"))
            unrehearsed.append(job(source, "40steps", rehearse=False))
        print(f"steps of {statistics.median(each.wall for each in alone):.1f} ms: {_ratios(ours, alone)}", flush=True)
        for name, jobs in ("rehearsed", rehearsed), ("not rehearsed", unrehearsed):
            saves = [each for _, those in jobs for each in those]
            print(
                f"  saved each 40 steps, a restart {name}: {_ratios([step for step, _ in jobs], alone)}; "
                f"a checkpoint of {statistics.median(each['bytes'] for each in saves) / 1e6:.1f} MB stalls "
                f"{1e3 * statistics.median(each['stall'] for each in saves):.1f} ms",
                flush=True,
            )


def _ratios(jobs: Sequence[Step], alone: Sequence[Step]) -> str:
    wall, cpu = ([each[clock] / other[clock] for each, other in zip(jobs, alone, strict=True)] for clock in (0, 1))
    return f"{_spread(wall)} of the bare loop's on the wall, {_spread(cpu)} of its CPU"


def _spread(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


if __name__ == "__main__":
    main()

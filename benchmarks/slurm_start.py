"""Measure the start of a training on two nodes of Slurm, beside a bare `sbatch` and `srun python train.py` of the same.

    python benchmarks/slurm_start.py [--pairs 5]

Both are submitted to a real Slurm of this machine, two nodes of one CPU. The time runs from the submission to the end
of the first step. Bare jobs and Daylight's alternate; the medians and their difference are printed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import textwrap
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.slurm import Slurm
from tests.support.world import DEFINITION, World, until
from tests.torture.nodes import cluster

TRAIN = """
import os, pathlib, sys, time
import torch
from torch import nn
import torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
os.environ |= {"RANK": str(rank), "WORLD_SIZE": os.environ["SLURM_NTASKS"]}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[2], "GLOO_SOCKET_IFNAME": "lo"}
torch.set_num_threads(1)
dist.init_process_group("gloo")
layers = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
loss = nn.functional.mse_loss(model(x[rank * 4 : rank * 4 + 4]), x[rank * 4 : rank * 4 + 4].sum(1, keepdim=True))
loss.backward()
optimizer.step()
if rank == 0:
    pathlib.Path(sys.argv[1]).write_text(str(time.time()))
"""


def bare(site: Slurm, folder: Path, nth: int) -> float:
    """Return the seconds from sbatch to the end of the first step of a plain script."""
    script, told = folder / "train.py", folder / f"told-{nth}"
    script.write_text(TRAIN)
    step = f"srun --mpi=none --nodes=2 --ntasks=2 --ntasks-per-node=1 {sys.executable} {script} {told} {29500 + nth}"
    begun = time.time()
    site.run("sbatch", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--output=/dev/null", f"--wrap={step}")
    until(told.exists, "the plain script takes a step")
    while not (text := told.read_text()):
        time.sleep(0.01)
    return float(text) - begun


def daylight(world: World) -> float:
    """Return the seconds from the submission to the end of the first step of the same in a pool."""
    begun = time.time()
    options = {"pool": "cluster", "slots": 2, "backend": "torch", "epochs": 1}
    number = world.submit(textwrap.dedent(DEFINITION), **options).experiment.number
    assert world.ended(number).state == "completed"
    return min(report.at for report in world.reports(number)) - begun


def main() -> None:
    """Measure pairs, and print them with their medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as name, cluster(Path(name)) as (world, site):
        found = []
        for nth in range(pairs + 1):
            found.append((bare(site, Path(name), nth), daylight(world)))
            site.idle()
            print(f"bare {found[-1][0]:.1f} s, Daylight {found[-1][1]:.1f} s", flush=True)
    found = found[1:]  # the first pair fills the caches of files
    ours, theirs = statistics.median(own for _, own in found), statistics.median(plain for plain, _ in found)
    more = statistics.median(own - plain for plain, own in found)
    print(f"medians of {pairs}: bare {theirs:.1f} s, Daylight {ours:.1f} s, {more:.1f} s more")


if __name__ == "__main__":
    main()

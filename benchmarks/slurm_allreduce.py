"""Measure an all-reduce of 64 MB between ranks on two nodes of Slurm, beside bare gloo under `srun`.

    python benchmarks/slurm_allreduce.py [--rounds 5]

Two nodes of one CPU on this machine. Bare jobs and trainings over both backends alternate; each takes the median of
some all-reduces in one job, and the medians of all rounds and their ratios to bare gloo are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_backend.definition.contract import CONTRACT
from tests.support.slurm import Slurm
from tests.support.world import World, until
from tests.torture.nodes import cluster

MEASURE = """
import statistics, time
import torch
import torch.distributed as dist

def measured(times=15):
    data = torch.ones(16 * 2**20)
    def reduce():
        if dist.is_initialized():
            dist.all_reduce(data)
        else:
            import horovod.torch as hvd
            hvd.allreduce_(data, op=hvd.Sum)
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        reduce()
        found.append(time.perf_counter() - begun)
    return statistics.median(found[3:])
"""
BARE = (
    MEASURE
    + """
import os, pathlib, sys
rank = int(os.environ["SLURM_PROCID"])
os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": sys.argv[2], "MASTER_PORT": sys.argv[3]}
torch.set_num_threads(1)
dist.init_process_group("gloo")
found = measured()
if rank == 0:
    pathlib.Path(sys.argv[1]).write_text(f"{found}\\n")
dist.barrier()  # a rank whose peer has gone is aborted
dist.destroy_process_group()
"""
)
OURS = (
    MEASURE
    + """
def train(run):
    run.restore(model=torch.nn.Linear(1, 1))
    for _ in run.steps(1):
        run.report(seconds=measured())
"""
)


def bare(site: Slurm, folder: Path, nth: int, address: str) -> float:
    """Return the seconds of an all-reduce by gloo, at the address by which the launchers' ranks connect."""
    script, told = folder / "bare.py", folder / f"told-{nth}"
    script.write_text(BARE)
    words = f"{sys.executable} {script} {told} {address} {29600 + nth}"
    step = f"srun --mpi=none --nodes=2 --ntasks=2 --ntasks-per-node=1 {words}"
    site.run("sbatch", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--output=/dev/null", f"--wrap={step}")
    until(lambda: told.exists() and told.read_text().endswith("\n"), "bare gloo is measured")
    return float(told.read_text())


def daylight(world: World, backend: str) -> tuple[float, str]:
    """Return the seconds of the same in a training, and the address of its first node."""
    options = {"pool": "cluster", "slots": 2, "backend": backend, "epochs": 1}
    number = world.submit(textwrap.dedent(OURS), contract=CONTRACT, **options).experiment.number
    overview = world.ended(number, 300.0)
    assert overview.state == "completed", overview
    return world.reports(number)[0].metrics["seconds"], overview.attempts[-1].nodes[0].address


def main() -> None:
    """Measure in turns, and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    found: dict[str, list[float]] = {"bare gloo": [], "torch": [], "horovod": []}
    with tempfile.TemporaryDirectory() as name, cluster(Path(name)) as (world, site):
        _, address = daylight(world, "torch")  # the first training warms caches up
        for nth in range(rounds):
            site.idle()
            found["bare gloo"].append(bare(site, Path(name), nth, address))
            for backend in ("torch", "horovod"):
                site.idle()
                found[backend].append(daylight(world, backend)[0])
            print(", ".join(f"{name} {seconds[-1] * 1000:.0f} ms" for name, seconds in found.items()), flush=True)
    medians = {name: statistics.median(seconds) for name, seconds in found.items()}
    for name, seconds in medians.items():
        print(f"{name}: {seconds * 1000:.0f} ms, {seconds / medians['bare gloo']:.2f} of bare gloo")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()

"""Measure the time from the start of a rank to its first step, resumed at 1 %, 50 % and 99 % of ten million samples.

Cold: the rank is a new interpreter; the time to import torch, Horovod and the runner is measured separately and
subtracted. Warm: the rank is forked by the forkserver of an earlier attempt, in which everything is imported. Two
loader workers start with it, as by default. It is compared with Accelerate's `skip_first_batches`, from its call to the
first batch, in a process that runs already.

    python benchmarks/resume_time.py [--runs 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from contenders import ours
from torch.utils.data import DataLoader

from kernel_backend.launch.gang import Gang
from kernel_backend.model.experiment import Keep
from kernel_backend.runner.loop import loop
from tests.support.world import World, until

SAMPLES = 10**7
BATCH_SIZE = 32
PLACES = (0.01, 0.5, 0.99)
SOURCE = f"""
import time
import torch
from torch import nn

class Many(torch.utils.data.Dataset):
    def __len__(self): return {SAMPLES}
    def __getitem__(self, index): return torch.full((64,), index / len(self)), torch.tensor(index % 10)
def train_data():             return Many()
def model(width=256):         return nn.Sequential(nn.Linear(64, width), nn.BatchNorm1d(width), nn.Linear(width, 10))
def optimizer(params):        return torch.optim.AdamW(params)
def loss(output, target, log=""):
    with open(log, "a") as file: print(time.time(), file=file)
    return nn.functional.cross_entropy(output, target)
"""
IMPORTS = """
import sys, time
try: import horovod.torch
except ImportError: pass
import kernel_backend.runner.rank_process
print(time.time() - float(sys.argv[1]))
"""


def checkpoints(home: Path) -> dict[float, str]:
    """Save a checkpoint of a training at each of the given places; return the checkpoints' names."""
    params, importable = {"log": str(home / "first.log")}, list(sys.path)
    run = ours.build(home, SOURCE, params, batch_size=BATCH_SIZE, keep=Keep(latest=len(PLACES)))
    loop.take_step(run, next(loop.batches(run)))
    names = {}
    for place in PLACES:
        run.step = round(place * SAMPLES / BATCH_SIZE)
        run.checkpoints.finish(loop.moment(run))
        names[place] = f"{run.step}-1"
    run.train.close()
    sys.path[:] = importable  # as a launcher's: a forkserver is another one where other modules can be imported
    return names


def resume(home: Path, name: str, number: int, warm: bool) -> float:
    """Return the seconds from the start of a rank to the end of its first step."""
    log = home / f"{number}.log"
    job = ours.a_job(home, SOURCE, {"log": str(log)}, batch_size=BATCH_SIZE, keep=Keep(latest=len(PLACES)))
    job = job.model_copy(update={"attempt": number, "resume_from": name})
    os.environ["DAYLIGHT_WARM"] = "1" if warm else "0"
    began = time.time()
    gang = Gang(job, ours.an_attempt(job))
    try:
        # The second step begins when the first has ended.
        until(lambda: None not in gang.codes().values() or len(_lines(log)) > 1, "two steps")
    finally:
        gang.end()
        gang.close()
    return float(_lines(log)[1]) - began


def importing(home: Path) -> float:
    """Return the seconds from the start of an interpreter until it has imported what a rank needs."""
    command = [sys.executable, "-P", "-c", IMPORTS, str(time.time())]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=home)
    return float(done.stdout)


def skipping(place: float) -> float:
    """Return the seconds until Accelerate has skipped to a place and has read its batch."""
    from accelerate import skip_first_batches

    namespace: dict[str, type] = {}
    exec(SOURCE, namespace)
    began = time.perf_counter()
    data = DataLoader(namespace["Many"](), BATCH_SIZE, shuffle=True)
    next(iter(skip_first_batches(data, round(place * SAMPLES / BATCH_SIZE))))
    return time.perf_counter() - began


def measure(home: Path, runs: int) -> None:
    """Print the medians for each place."""
    names = checkpoints(home)
    numbers = iter(range(2, 1000))
    resume(home, names[PLACES[0]], next(numbers), warm=True)  # leaves a forkserver
    imports = statistics.median(importing(home) for _ in range(runs))
    print(f"importing takes {imports:.2f} s, median of {runs}")
    print(f"  {'resumed at':>12}{'cold':>10}{'without import':>17}{'warm':>10}{'skip_first_batches':>21}")
    for place, name in names.items():
        pairs = [[resume(home, name, next(numbers), warm) for warm in (False, True)] for _ in range(runs)]
        cold, warm = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
        skipped = skipping(place)
        print(
            f"  {place:12.0%}{cold:8.2f} s{cold - imports:15.2f} s{warm:8.2f} s{skipped:19.2f} s"
            f"   warm is {warm / skipped:.2f} of it",
            flush=True,
        )


def _lines(log: Path) -> list[str]:
    return log.read_text().rpartition("\n")[0].splitlines() if log.exists() else []


def main() -> None:
    """Measure in a temporary DAYLIGHT_HOME."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="pairs at each place (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one pair")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        home.mkdir()
        try:
            measure(home, 1 if args.quick else args.runs)
        finally:
            World(home).close()


if __name__ == "__main__":
    main()

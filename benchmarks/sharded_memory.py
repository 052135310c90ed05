"""Peak memory of a rank with the whole model (`ddp`) and with its part of it (`fsdp2`).

    python benchmarks/sharded_memory.py [--slots 2 4]

A perceptron of 33.6 million parameters (134 MB) with AdamW: weights, gradients and the optimizer's two moments are 537
MB. Counted is what a rank's peak of resident memory grows by from before `model()` on, in steps and saves; `resumed` is
that of an attempt which begins with loading the checkpoint. The goal is 1/W of the 537 MB, and 20 % more.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "distributed"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from gang import Attempt, Trial

LAYERS, WIDTH = 16, 1448
STATE_MB = 4 * 4 * LAYERS * WIDTH * (WIDTH + 1) / 1e6
SOURCE = f"""
import torch
from torch import nn

def held(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024 / 1e6

def train_data(): return torch.utils.data.TensorDataset(torch.randn(96, {WIDTH}), torch.randn(96, {WIDTH}))
def model():
    open("/proc/self/clear_refs", "w").write("5")  # the peak so far was that of imports
    print("before", held("VmRSS"), flush=True)
    return nn.Sequential(*(nn.Sequential(nn.Linear({WIDTH}, {WIDTH}), nn.ReLU()) for _ in range({LAYERS})))
def optimizer(params): return torch.optim.AdamW(params, lr=1e-4)
def loss(output, target):
    print("peak", held("VmHWM"), flush=True)
    return (output - target).square().mean()
"""


def peaks(ran: Attempt) -> list[float]:
    """Return the growth of each rank's memory in MB."""
    found = []
    for log in sorted(ran.folder.path.glob("rank-*.log")):
        text = log.read_text()
        (before,) = re.findall(r"before ([\d.]+)", text)
        found.append(max(map(float, re.findall(r"peak ([\d.]+)", text))) - float(before))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--strategies", nargs="+", default=["ddp", "fsdp2"])
    options = parser.parse_args()
    for slots in options.slots:
        for strategy in options.strategies:
            with tempfile.TemporaryDirectory() as folder:
                own = {"strategy": strategy, "until": 5}
                trial = Trial(Path(folder) / "trial", SOURCE, slots, batch_size=8, every="2steps", options=own)
                first = trial.run()
                assert set(first.codes) == {0}, first.logs()
                trial.options["until"] = 8
                second = trial.run(trial.pinned())
                assert set(second.codes) == {0}, second.logs()
                grown, again = (max(peaks(each)) for each in (first, second))
                share = STATE_MB / slots
                print(f"{slots} slots, {strategy}, of 1/{slots} of {STATE_MB:.0f} MB: ", end="")
                print(f"{grown / share:.2f} x ({grown:.0f} MB), resumed {again / share:.2f} x", flush=True)


if __name__ == "__main__":
    main()

"""Measure the peak memory of a rank that has the whole model (`ddp`) or its part of it (`fsdp2`).

    python benchmarks/sharded_memory.py [--slots 2 4] [--layers 16 48]

A perceptron with AdamW: weights, gradients and the optimizer's two moments are 537 MB at 16 layers, 1,611 MB at 48.
Measured is the growth of a rank's peak resident memory since before the call of `model()`, over steps and saves;
`resumed` is the growth in an attempt that begins with loading the checkpoint. The part in brackets is pages of library
files that were loaded meanwhile: it does not depend on the number of slots, and the ranks of a node share it. The goal
for W slots is 1/W of the state, and 20 % more.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "distributed"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from gang import Attempt, Trial

WIDTH = 1448
SOURCE = """
import re
import torch
from torch import nn

def say(what, name):
    text = open("/proc/self/status").read()
    whole, files = (int(re.search(rf"{each}:\\s+(\\d+)", text)[1]) * 1024 / 1e6 for each in (name, "RssFile"))
    print(what, whole, files, flush=True)

def train_data(): return torch.utils.data.TensorDataset(torch.randn(96, WIDTH), torch.randn(96, WIDTH))
def model():
    open("/proc/self/clear_refs", "w").write("5")  # the peak so far was that of imports
    say("before", "VmRSS")
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)))
def optimizer(params): return torch.optim.AdamW(params, lr=1e-4)
def loss(output, target):
    say("peak", "VmHWM")
    return (output - target).square().mean()
"""


class Peak(NamedTuple):
    """Record the growth of a rank's memory in MB."""

    whole: float
    files: float

    def text(self, share: float) -> str:
        """Return the growth as a multiple of the rank's share of the state."""
        return f"{self.whole / share:.2f} x ({self.whole:.0f} MB) [{self.files:.0f} MB]"


def peak(ran: Attempt) -> Peak:
    """Return the growth of memory in the rank that needed most."""
    return max(_growth(log.read_text()) for log in sorted(ran.folder.path.glob("rank-*.log")))


def _growth(log: str) -> Peak:
    found = re.findall(r"(before|peak) ([\d.]+) ([\d.]+)", log)
    values = {what: (float(whole), float(files)) for what, whole, files in found}  # the last line of each
    return Peak(*(now - before for now, before in zip(values["peak"], values["before"], strict=True)))


def main() -> None:
    """Print the growth of memory for each size and number of slots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--layers", type=int, nargs="+", default=[16, 48])
    parser.add_argument("--strategies", nargs="+", default=["ddp", "fsdp2"])
    options = parser.parse_args()
    for layers, slots, strategy in itertools.product(options.layers, options.slots, options.strategies):
        state = 4 * 4 * layers * WIDTH * (WIDTH + 1) / 1e6
        first, second = measure(layers, slots, strategy)
        print(f"{slots} slots, {strategy}, of 1/{slots} of {state:,.0f} MB: ", end="")
        print(f"{first.text(state / slots)}, resumed {second.text(state / slots)}", flush=True)


def measure(layers: int, slots: int, strategy: str) -> tuple[Peak, Peak]:
    """Train, then resume from the checkpoint; return the peak of each."""
    with tempfile.TemporaryDirectory() as folder:
        own = {"strategy": strategy, "until": 5}
        source = SOURCE.replace("WIDTH", str(WIDTH)).replace("LAYERS", str(layers))
        trial = Trial(Path(folder) / "trial", source, slots, batch_size=8, every="3steps", options=own)
        first = trial.run()
        assert set(first.codes) == {0}, first.logs()
        trial.options["until"] = 8
        second = trial.run(trial.pinned())
        assert set(second.codes) == {0}, second.logs()
        return peak(first), peak(second)


if __name__ == "__main__":
    main()

"""Measure the time from submitting to the first training step, against `python train.py` of the same model.

    python benchmarks/submit_latency.py [--runs 5] [--locked]

Both are measured alternately on the same machine; the service runs already, as after the first use.
By hand: from the start of the interpreter to the end of the first step. Daylight: from the call of `submit` (snapshot,
upload, queue, launcher, ranks) to the end of the first step, by one and by two ranks; with `--locked` by one rank in
the locked environment, too, once that has been built from a package index.
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
from typing import Literal

DEFINITION = """
import torch
from torch import nn
from sklearn.datasets import load_digits

def dataset():
    x, y = load_digits(return_X_y=True)
    return torch.utils.data.TensorDataset(torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y))
def train_data(dataset):     return dataset
def model(width=64):         return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
def loss(output, target):    return nn.functional.cross_entropy(output, target)
"""
BY_HAND = """
import time
data = dataset()
net = model()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for x, y in torch.utils.data.DataLoader(data, batch_size=32, shuffle=True):
    optimizer.zero_grad()
    loss(net(x), y).backward()
    optimizer.step()
    print(time.time(), flush=True)
    break
"""


def by_hand(folder: Path) -> float:
    """Return the seconds from the start of `python train.py` to its first step."""
    script = folder / "train.py"
    script.write_text(DEFINITION + BY_HAND)
    begun = time.time()
    done = subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True)
    return float(done.stdout) - begun


def by_daylight(folder: Path, slots: int, env: Literal["current", "locked"] = "current") -> float:
    """Return the seconds from the call of `submit` to the first step that was reported."""
    from jupyter_ext.capture import capture_file
    from jupyter_ext.submit.submit import submit
    from kernel_backend.client import Client
    from kernel_backend.model.experiment import Config

    cell = folder / "cell.py"
    cell.write_text(DEFINITION)
    client = Client.connect()
    begun = time.time()
    number = submit(capture_file(cell), Config(slots=slots, env=env), {}, client=client).experiment.number
    for message in client.watch(experiment=number):
        if message.type == "report":
            break
    first = client.reports(number, kind="training", limit=1)[0]
    assert first.step == 1, f"the first report is of step {first.step}"
    while client.experiment(number).state not in ("completed", "failed"):
        time.sleep(0.1)
    return first.at - begun


def main() -> None:
    """Print the medians, and the difference to the hand-written script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--locked", action="store_true", help="measure the locked environment, too")
    options = parser.parse_args()
    runs = options.runs
    ways: dict[str, tuple[int, Literal["current", "locked"]]] = {"1 slot": (1, "current")}
    ways["2 Horovod ranks"] = (2, "current")
    if options.locked:
        ways["1 slot, locked"] = (1, "locked")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["DAYLIGHT_HOME"] = str(folder / "home")
        os.environ["DAYLIGHT_SLOTS"] = "2"
        from kernel_backend import discovery

        address = discovery.start()
        try:
            for slots, env in ways.values():
                by_daylight(folder, slots, env)
            times = [(by_hand(folder), *(by_daylight(folder, *way) for way in ways.values())) for _ in range(runs)]
        finally:
            os.kill(address.pid, 15)
            time.sleep(1)
    hand, *ours = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"submit to first step, median of {runs} paired runs")
    print(f"  python train.py by hand      {hand:6.2f} s")
    for place, (way, seconds) in enumerate(zip(ways, ours, strict=True), start=1):
        above = statistics.median(row[place] - row[0] for row in times)
        print(f"  daylight, {way:18} {seconds:6.2f} s   ratio {seconds / hand:.2f}   above by {above:+.2f} s")


if __name__ == "__main__":
    main()

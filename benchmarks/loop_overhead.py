"""Measure the step time of each form of job on one slot, against loops by hand, Lightning and Accelerate.

Daylight's is the runner's own loop with everything that is on by default: derived seeds, reports to the spool (the file
that the service reads), heartbeats, deterministic operations. None takes checkpoints, whose cost `checkpoint_stall.py`
measures. A step lasts from the arrival of one batch to that of the next and so includes the loading; the dataset flips
its samples at random.

"module in a job" is the LightningModule that Lightning's own Trainer trains alone, in a job of Daylight.

    python benchmarks/loop_overhead.py              steps of about 10 and 60 ms, 0 and 2 loader workers
    python benchmarks/loop_overhead.py --quick
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from contenders import ours, peers
from contenders.round_robin import Contender, contest, ratio

BATCH_SIZE = 32
WIDTHS = {"10 ms": 8, "60 ms": 56}  # channels of the CNN
PEERS = {"by hand": peers.by_hand, "Lightning": peers.lightning, "Accelerate": peers.accelerate}


def compare(name: str, width: int, workers: int, rounds: int, steps: int) -> None:
    """Print step times and ratios of one model with so many loader workers."""
    params: dict[str, Any] = {"net": "cnn", "width": width}
    daylight = partial(ours.train, batch_size=BATCH_SIZE, loader_workers=workers)
    contenders = {name: Contender(train, (params, BATCH_SIZE, workers)) for name, train in PEERS.items()}
    contenders |= {"Daylight": Contender(daylight, (params,))}
    contenders |= {"train(run)": Contender(ours.train_loop, (params, BATCH_SIZE, workers))}
    contenders |= {"module in a job": Contender(ours.train_lightning, (params, BATCH_SIZE, workers))}
    times = contest(contenders, rounds, steps)
    print(f"\nCNN of about {name} a step, batches of {BATCH_SIZE}, {workers} loader workers, {rounds} x {steps} steps")
    for contender, each in times.items():
        print(
            f"  {contender:12} {statistics.median(each) * 1e3:8.2f} ms a step, {min(each) * 1e3:.2f} in its best round"
        )
    for own in ("Daylight", "train(run)", "module in a job"):
        against = ", ".join(f"{ratio(times[own], times[peer]):.3f} x {peer}" for peer in PEERS)
        print(f"  {own:12} {against}", flush=True)


def main() -> None:
    """Measure every pair of step length and worker count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="paired rounds (default: %(default)s)")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2], help="loader workers (default: 0 2)")
    parser.add_argument("--quick", action="store_true", help="few rounds: a look, not a figure")
    args = parser.parse_args()
    for name, width in WIDTHS.items():
        for workers in args.workers:
            compare(name, width, workers, 4 if args.quick else args.rounds, 40 if width < 16 else 12)


if __name__ == "__main__":
    main()

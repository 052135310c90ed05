"""Measure the cost of reproducible bits: the step time with --reproducible host and portable, against off.

`host`, the default, makes torch choose deterministic operations; on a CPU nearly all are. `portable` also forbids
instructions that not every x86-64 CPU has, so that the bits are the same on all. Torch reads these settings from
environment variables when it is imported; so each contender is a process of its own, started with the variables that
its launcher sets. With a GPU the same is measured on it, and with `--device cpu` on the CPU.

    python benchmarks/reproducible_price.py                 a CNN, an MLP and a transformer, one thread
    python benchmarks/reproducible_price.py --threads 1 2
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from contenders import ours
from contenders.round_robin import Contender, contest, ratio

from kernel_backend.model.launch.numerics import Scope, numerics_env

BATCH_SIZE = 64
SCOPES: tuple[Scope, ...] = ("off", "host", "portable")
MODELS: dict[str, dict[str, Any]] = {
    "CNN": {"net": "cnn", "width": 16, "augmented": False},
    "MLP": {"net": "mlp", "width": 1024, "augmented": False},
    "transformer": {"net": "transformer"},
}


def contender(model: str, scope: Scope, threads: int, **options: Any) -> Contender:
    """Return a contender with the given setting of `--reproducible`."""
    train = partial(ours.train, batch_size=BATCH_SIZE, reproducible=scope, threads=threads, **options)
    return Contender(train, (MODELS[model],), env=numerics_env(scope, threads))


def compare(model: str, threads: int, rounds: int, steps: int) -> None:
    """Print a model's step time at each setting of `--reproducible`."""
    contenders = {scope: contender(model, scope, threads) for scope in SCOPES}
    on = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    if torch.cuda.is_available():
        contenders |= {"host, --device cpu": contender(model, "host", threads, device="cpu")}
    times = contest(contenders, rounds, steps)
    print(f"\n{model}, batches of {BATCH_SIZE}, {threads} threads, {on}, {rounds} rounds of {steps} steps")
    for name, each in times.items():
        print(f"  {name:20}{statistics.median(each) * 1e3:8.2f} ms a step, {ratio(each, times['off']):.3f} x off")


def main() -> None:
    """Measure every model at every number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="paired rounds (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="steps of a round (default: %(default)s)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="CPU threads of the slot (default: 1)")
    parser.add_argument("--quick", action="store_true", help="few rounds: a look, not a figure")
    args = parser.parse_args()
    for model in MODELS:
        for threads in args.threads:
            compare(model, threads, 4 if args.quick else args.rounds, args.steps)


if __name__ == "__main__":
    main()

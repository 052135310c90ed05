"""Measure the cost of --logical-workers: a step of four logical ranks against a usual one, at equal numbers of slots.

With four logical ranks each slot computes its shares of the batch one after the other, and gradients are summed by a
fixed tree, so that the bits are the same on 1, 2 and 4 slots. Without them each slot computes its whole share at once,
and a ring all-reduce sums in an order that depends on the number of slots. On one slot nothing is sent: the difference
there is the cost of four small passes instead of a large one.

    python benchmarks/elastic_cost.py               a CNN and a wide MLP, 1, 2 and 4 slots, both backends
    python benchmarks/elastic_cost.py --quick       the CNN over torch.distributed
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from contenders import ours
from contenders.round_robin import Contender, contest, ratio

LOGICAL = 4
BATCH_SIZE = 64
MODELS: dict[str, dict[str, Any]] = {
    "CNN, 0.3 million parameters": {"net": "cnn", "width": 32, "augmented": False},
    "MLP, 1.1 million parameters": {"net": "mlp", "width": 1024, "augmented": False},
}


def compare(name: str, ranks: int, backend: str, rounds: int, steps: int) -> None:
    """Print both step times of a model on `ranks` slots, and their ratio."""
    train = partial(ours.train, batch_size=BATCH_SIZE, backend=backend)
    tree = partial(train, logical_workers=LOGICAL)
    contenders = {each: Contender(how, (MODELS[name],), ranks) for each, how in (("ring", train), ("tree", tree))}
    times = contest(contenders, rounds, steps)
    ring, summed = (statistics.median(times[each]) * 1e3 for each in ("ring", "tree"))
    over = f"over {backend}" if ranks > 1 else "alone"
    against = ratio(times["tree"], times["ring"])
    print(
        f"  {ranks} slots {over:14} ring {ring:8.2f} ms, {LOGICAL} logical ranks {summed:8.2f} ms: {against:.3f} x",
        flush=True,
    )


def main() -> None:
    """Measure every model on every number of slots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="paired rounds (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=8, help="steps of a round (default: %(default)s)")
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 2, 4], help="numbers of slots (default: 1 2 4)")
    parser.add_argument("--quick", action="store_true", help="one model, one backend, few rounds")
    args = parser.parse_args()
    for name in list(MODELS)[: 1 if args.quick else None]:
        print(f"\n{name}, batches of {BATCH_SIZE}, one thread a slot")
        for ranks in args.slots:
            for backend in ("torch", "horovod")[: 1 if args.quick or ranks == 1 else None]:
                compare(name, ranks, backend, 4 if args.quick else args.rounds, args.steps)


if __name__ == "__main__":
    main()

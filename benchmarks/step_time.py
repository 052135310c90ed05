"""Measure the step time of the runner's loop and reducer on two ranks, against DDP and Horovod's DistributedOptimizer.

Every contender trains the same model on the same data, held in memory, with one thread a rank, in processes of its own
that take turns (`contenders/round_robin.py`). A ratio is the median over rounds of (ours / theirs in the same round);
below 1.00 is faster than the peer.

    python benchmarks/step_time.py                   two ranks on the CPU, both CNNs, the MLP's overhead
    python benchmarks/step_time.py --model cnn-3m --rounds 60
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from contenders import ours, work
from contenders.round_robin import Contender, contest, ratio
from torch import nn

PEERS = ("ddp", "distributed-optimizer")
OURS = ("ours over torch", "ours over horovod")
MODELS: dict[str, tuple[dict[str, Any], int]] = {  # and the global batch
    "cnn-small": ({"net": "cnn", "width": 32, "augmented": False}, 64),
    "cnn-3m": ({"net": "deep", "augmented": False}, 32),
    "mlp": ({"net": "mlp", "width": 64, "augmented": False}, 32),
}


def theirs(step: Any, name: str, params: dict[str, Any], batch: int) -> None:
    """Train by a loop by hand, on this rank's share of every batch."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = work.model(**{key: value for key, value in params.items() if key != "augmented"})
    x, y = work.train_data(params["net"], augmented=False).tensors
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    share = batch // size
    model, optimizer = distributed(name, net)
    while True:
        for rows in torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).split(batch):
            mine = rows[rank * share : (rank + 1) * share]
            step()
            optimizer.zero_grad()
            work.loss(model(x[mine]), y[mine]).backward()
            optimizer.step()


def distributed(name: str, net: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return the model and an optimizer that sums gradients over the ranks."""
    optimizer: torch.optim.Optimizer = work.optimizer(net.parameters())
    if name == "ddp":
        torch.distributed.init_process_group("gloo")
        return nn.parallel.DistributedDataParallel(net), optimizer
    if name == "distributed-optimizer":
        import horovod.torch as hvd

        for variable in ("HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME"):  # the peer with its own defaults
            os.environ.pop(variable, None)
        hvd.init()
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    return net, optimizer


def contender(name: str, model: str, ranks: int) -> Contender:
    """Return the contender of that name for a model on so many ranks."""
    params, batch = MODELS[model]
    if name in OURS:
        return Contender(partial(ours.train, batch_size=batch, backend=name.split()[-1]), (params,), ranks)
    return Contender(theirs, (name, params, batch), ranks)


def compare(model: str, rounds: int, steps: int) -> None:
    """Print the ratios of one model at two ranks."""
    times = contest({name: contender(name, model, 2) for name in (*PEERS, *OURS)}, rounds, steps)
    print(f"\n{model}, 2 ranks, {rounds} rounds of {steps} steps")
    for name, each in times.items():
        median, least = statistics.median(each) * 1e3, min(each) * 1e3
        print(f"  {name:22} {median:8.2f} ms a step, {least:.2f} in its best round")
    for name in OURS:
        against = ", ".join(f"{ratio(times[name], times[peer]):.3f} x {peer}" for peer in PEERS)
        print(f"  {name:22} {against}", flush=True)


def overhead(rounds: int) -> None:
    """Print what the runner adds to a step of the tiny MLP on one rank, in microseconds."""
    names = ("by hand", "ours over torch")
    times = contest({name: contender(name, "mlp", 1) for name in names}, rounds, 300)
    hand, mine = (statistics.median(times[name]) * 1e6 for name in names)
    print(f"\nmlp, 1 rank: {hand:.0f} us a step by hand, {mine:.0f} us by the runner: {mine - hand:.0f} us more")


def main() -> None:
    """Run the comparisons that the command line selects."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=[*MODELS, "all"], default="all", help="which model (default: all)")
    parser.add_argument("--rounds", type=int, default=30, help="paired rounds (default: 30)")
    parser.add_argument("--steps", type=int, default=4, help="steps a round, 25 times as many of the mlp (default: 4)")
    chosen = parser.parse_args()
    for model in MODELS if chosen.model == "all" else [chosen.model]:
        compare(model, chosen.rounds, chosen.steps * (25 if model == "mlp" else 1))
    if chosen.model in ("mlp", "all"):
        overhead(chosen.rounds)


if __name__ == "__main__":
    main()

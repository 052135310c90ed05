"""Step time of the runner's loop and reducer, against DDP and Horovod's DistributedOptimizer in loops by hand.

Every contender trains the same model on the same data with one thread a rank, in processes of its own. They take turns
of a few steps, frozen in between, so that whatever else the machine does meets all of them. A ratio is the median over
rounds of (ours / theirs in the same round); below 1.00 is faster than the peer.

    python benchmarks/step_time.py                   two ranks on the CPU, both CNNs, the MLP's overhead
    python benchmarks/step_time.py --model cnn-3m --rounds 60
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import nn

from kernel_backend.launch import horovod as horovod_launch
from kernel_backend.launch import torch as torch_launch
from kernel_backend.launch.gang import free_port
from kernel_backend.launch.rendezvous import Meeting, seats
from kernel_backend.model.experiment import Cadence
from kernel_backend.model.resources import Share
from kernel_backend.runner import loop, worker
from kernel_backend.runner.data import Batches, order, source
from kernel_backend.runner.functions import BatchRule
from kernel_backend.runner.link import Instructions, Spool
from kernel_backend.runner.pace import Pace
from kernel_backend.runner.ranks import Choice, Ranks, connect
from kernel_backend.runner.reducer import reducer

PEERS = ("ddp", "distributed-optimizer")
OURS = ("ours over torch", "ours over horovod")
SAMPLES = 2048
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "horovod.torch", "kernel_backend.runner.worker"])


def small_cnn() -> nn.Module:
    """0.3 million parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 64, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def large_cnn() -> nn.Module:
    """3 million parameters, BatchNorm after each convolution."""
    widths, layers = [3, 64, 128, 256, 512], []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * 4, 700), nn.ReLU(), nn.Linear(700, 10))


def mlp() -> nn.Module:
    """The digits of the tutorial."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "cnn-small": (small_cnn, (3, 32, 32), 64),  # model, shape of a sample, global batch
    "cnn-3m": (large_cnn, (3, 32, 32), 32),
    "mlp": (mlp, (64,), 32),
}


def data(shape: tuple[int, ...]) -> torch.utils.data.TensorDataset:
    """Samples of noise, held in memory."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (SAMPLES,), generator=generator)
    return torch.utils.data.TensorDataset(torch.randn(SAMPLES, *shape, generator=generator), labels)


def our_steps(net: nn.Module, ranks: Ranks, dataset: torch.utils.data.TensorDataset, size: int) -> Iterator[None]:
    """The runner's own loop, reports and all."""
    batches = Batches(source(dataset, "train_data"), size, 0, "sample", ranks.rank, ranks.size)
    run = loop.Training(
        model=net,
        optimizer=torch.optim.AdamW(net.parameters()),
        gradients=reducer(net, ranks),
        loss=lambda output, target, **rest: nn.functional.cross_entropy(output, target),
        metrics=None,
        rule=BatchRule(net),
        train=batches,
        validation=None,
        device=torch.device("cpu"),
        ranks=ranks,
        checkpoints=None,  # type: ignore[arg-type]
        pace=Pace(batches.per_epoch, Cadence(seconds=3600.0)),
        spool=Spool(Path(tempfile.mkdtemp()) / "spool.jsonl", ranks.rank),
        instructions=Instructions(),
        seed=0,
        epochs=1,
    )
    while True:
        for batch in batches.shuffled(run.step // batches.per_epoch):
            word, logged = loop.take_step(run, batch)
            run.step += 1
            if word.flags.report:
                loop.report(run, word, logged, batch)
            yield


def their_steps(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    rank: int,
    size: int,
    dataset: torch.utils.data.TensorDataset,
    batch: int,
) -> Iterator[None]:
    """A loop by hand over the same order of samples."""
    x, y = dataset.tensors
    epoch, share = 0, batch // size
    while True:
        for rows in order(0, epoch, SAMPLES).split(batch):
            mine = rows[rank * share : (rank + 1) * share]
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[mine]), y[mine]).backward()
            optimizer.step()
            yield
        epoch += 1


def contender(name: str, model: str) -> Iterator[None]:
    """The steps of a contender on this rank, which is connected to its peers by now."""
    make, shape, batch = MODELS[model]
    torch.manual_seed(0)
    net, dataset = make(), data(shape)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if name in OURS:
        return our_steps(net, connect(Choice(name.split()[-1], ""), "cpu"), dataset, batch)
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(net.parameters())
    if name == "ddp":
        torch.distributed.init_process_group("gloo")
        return their_steps(nn.parallel.DistributedDataParallel(net), optimizer, rank, size, dataset, batch)
    if name == "distributed-optimizer":
        import horovod.torch as hvd

        hvd.init()
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    return their_steps(net, optimizer, rank, size, dataset, batch)


def be_a_rank(name: str, model: str, environment: dict[str, str], commands: Connection) -> None:
    """Take as many steps as each command says and answer with the seconds of each; end with the pipe."""
    os.environ.update(environment)
    worker.settle("cpu", 1, 0)
    taken = contender(name, model)
    with contextlib.suppress(EOFError):
        while True:
            commands.send([seconds(taken) for _ in range(commands.recv())])
    os._exit(0)


def seconds(taken: Iterator[None]) -> float:
    """How long the next step takes."""
    began = time.perf_counter()
    next(taken)
    return time.perf_counter() - began


class Gang:
    """A contender's ranks, frozen unless it is their turn: an idle Horovod keeps a core busy."""

    def __init__(self, name: str, model: str, ranks: int) -> None:
        slots = tuple(range(ranks))
        everyone = seats((Share(node="here", kind="cpu", address="127.0.0.1", slots=slots),))
        self._rendezvous = horovod_launch.Rendezvous("127.0.0.1", everyone)
        meeting = Meeting("127.0.0.1", "lo", free_port("127.0.0.1"), self._rendezvous.port)
        self._pipes, self._processes = [], []
        for seat in everyone:
            ours, theirs = CONTEXT.Pipe()
            environment = torch_launch.env(seat, meeting) | horovod_launch.env(seat, meeting)
            if name == "distributed-optimizer":  # the peer with its own defaults
                del environment["HOROVOD_FUSION_THRESHOLD"], environment["HOROVOD_CYCLE_TIME"]
            process = CONTEXT.Process(target=be_a_rank, args=(name, model, environment, theirs))
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def steps(self, count: int) -> list[float]:
        """Seconds of each of the next steps, on rank 0."""
        self._signal(signal.SIGCONT)
        for pipe in self._pipes:
            pipe.send(count)
        answers = [pipe.recv() for pipe in self._pipes]
        self._signal(signal.SIGSTOP)
        return list(answers[0])

    def close(self) -> None:
        """End the ranks."""
        for process in self._processes:
            process.kill()
            process.join()
        self._rendezvous.close()

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            assert process.pid is not None
            os.kill(process.pid, number)


def measure(names: tuple[str, ...], model: str, ranks: int, steps: int, rounds: int) -> dict[str, list[float]]:
    """Median step times by contender, one a round, in seconds; who begins a round changes."""
    gangs = {name: Gang(name, model, ranks) for name in names}
    for gang in gangs.values():
        gang.steps(10)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            times[name].append(statistics.median(gangs[name].steps(steps)))
    for gang in gangs.values():
        gang.close()
    return times


def ratio(ours: list[float], theirs: list[float]) -> float:
    """The median over rounds of ours / theirs."""
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


def compare(model: str, rounds: int, steps: int) -> None:
    """Print the ratios of one model at two ranks."""
    times = measure((*PEERS, *OURS), model, 2, steps, rounds)
    print(f"\n{model}, 2 ranks, {rounds} rounds of {steps} steps")
    for name, each in times.items():
        median, least = statistics.median(each) * 1e3, min(each) * 1e3
        print(f"  {name:22} {median:8.2f} ms a step, {least:.2f} in its best round")
    for ours in OURS:
        against = ", ".join(f"{ratio(times[ours], times[peer]):.3f} x {peer}" for peer in PEERS)
        print(f"  {ours:22} {against}", flush=True)


def overhead(rounds: int) -> None:
    """Print what the runner adds to a step of the tiny MLP on one rank, in microseconds."""
    times = measure(("by hand", "ours over torch"), "mlp", 1, 300, rounds)
    hand, ours = (statistics.median(times[name]) * 1e6 for name in times)
    print(f"\nmlp, 1 rank: {hand:.0f} us a step by hand, {ours:.0f} us by the runner: {ours - hand:.0f} us more")


def main() -> None:
    """Measure what was asked for."""
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

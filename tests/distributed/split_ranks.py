"""Run programs with split calls on ranks: two processes over gloo or Horovod, or a single one.

`python split_ranks.py FOLDER BACKEND PROGRAM...` is one of them; its variables are those that a launcher sets.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from kernel_backend.launch import horovod
from kernel_backend.launch import torch as torch_env
from kernel_backend.launch.ports import reserved_port
from kernel_backend.launch.rendezvous import RendezvousInfo, rank_assignments
from kernel_backend.model.resources import Share
from kernel_backend.runner.forms.script.split.calls import SplitCalls
from kernel_backend.runner.ranks.backends import Choice, Ranks, connect

PATIENCE_S = 400  # until a program that does not end is a failed test
ROOT = Path(__file__).parents[2]


class Ran(NamedTuple):
    """Result of a program on one rank."""

    values: dict[str, Any]  # its tensors, numbers and texts, and the states of its modules and optimizers, by name
    output: str
    notes: list[str]
    splits: int
    error: str | None


def run(folder: Path, programs: Sequence[Path], slots: int = 2, backend: str = "torch") -> dict[str, list[Ran]]:
    """Run programs one after another; return the results of each rank by the stem of the program's file."""
    folder.mkdir(parents=True, exist_ok=True)
    everyone = rank_assignments((Share(node="here", kind="cpu", address="127.0.0.1", slots=tuple(range(slots))),))
    server = horovod.Rendezvous("127.0.0.1", everyone) if backend == "horovod" and slots > 1 else None
    port = reserved_port("127.0.0.1")
    meeting = RendezvousInfo("127.0.0.1", "lo", port.getsockname()[1], server.port if server else None)
    common = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder), backend, *map(str, programs)],
            env=common | torch_env.env(seat, meeting) | horovod.env(seat, meeting),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for seat in everyone
    ]
    try:
        outputs = [each.communicate(timeout=PATIENCE_S)[0] for each in processes]
    finally:
        for each in processes:
            each.kill()
        port.close()
        if server:
            server.close()
    assert all(each.returncode == 0 for each in processes), "\n".join(outputs)
    return {
        program.stem: [Ran(**torch.load(_result(folder, rank, program))) for rank in range(slots)]
        for program in programs
    }


def work(folder: Path, backend: str, programs: Sequence[Path]) -> None:
    """Run programs as one rank."""
    torch.set_num_threads(1)
    folder = folder.resolve()
    ranks = connect(Choice(backend, "chosen"), "cpu", PATIENCE_S)
    own = folder / f"files-{ranks.rank}"
    own.mkdir(exist_ok=True)
    os.chdir(own)
    for program in programs:
        torch.save(_run(program, ranks)._asdict(), _result(folder, ranks.rank, program))
    ranks.barrier()
    ranks.close()


def _result(folder: Path, rank: int, program: Path) -> Path:
    return folder / f"{program.stem}-{rank}.pt"


def _run(program: Path, ranks: Ranks) -> Ran:
    notes: list[str] = []
    optimizers: dict[torch.optim.Optimizer, None] = {}
    split = SplitCalls(ranks, torch.device("cpu"), notes.append)
    held: dict[str, Any] = {"__name__": "__main__", "__file__": str(program)}
    output, error = io.StringIO(), None

    def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        optimizers[optimizer] = None
        split.end_step()

    if ranks.size > 1:
        split.install()
    steps, sys.argv = register_optimizer_step_post_hook(stepped), [str(program)]
    try:
        with contextlib.redirect_stdout(output):
            exec(compile(program.read_text(), str(program), "exec"), held)
    except (Exception, SystemExit) as raised:
        error = f"{type(raised).__name__}: {raised}"
    finally:
        split.close()
        steps.remove()
    trained = {
        f"optimizer {number} group {index}": torch.cat([each.detach().reshape(-1) for each in group["params"]])
        for number, optimizer in enumerate(optimizers)
        for index, group in enumerate(optimizer.param_groups)
    }
    return Ran(_values(held) | trained, output.getvalue(), notes, split.state_dict()["count"], error)


def _values(held: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in held.items():
        if isinstance(value, nn.Module):
            state = value.state_dict().items()
            found |= {f"{name}.{key}": each.detach().clone() for key, each in state if torch.is_tensor(each)}
        elif isinstance(value, torch.Tensor):
            found[name] = value.detach().clone()
        elif isinstance(value, int | float) or (isinstance(value, str) and not name.startswith("__")):
            found[name] = value if isinstance(value, str) else float(value)
        elif isinstance(value, list) and all(isinstance(each, int | float) for each in value):
            found[name] = torch.tensor(value, dtype=torch.float64)
    return found


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2], [Path(each) for each in sys.argv[3:]])

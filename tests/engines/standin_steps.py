"""Simulate a rank that takes steps without a training, writes real heartbeats, and stops at a step as its job says.

params: `steps` to take, `stop` at this one, of rank `only_rank`, in the `way`: `sleep`, `native` (code that holds the
GIL), `freeze` (a stopped process), `leave` (exit code 0) or `kill`; `say` is printed at that step. `exit` is the code
after the last step, unless a rank does not `part` from its peers then but ends in this way. Ranks begin together, and
none leaves in peace before all have taken their steps.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

from kernel_backend.runner.progress import Progress, show_stacks_on_demand


def asleep() -> None:
    time.sleep(3600)


def late_kill() -> None:
    pids = json.loads((folder / "ranks.json").read_text())
    while any(Path(f"/proc/{pid}").exists() for pid in pids.values() if pid != os.getpid()):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def meet(where: str) -> None:
    """Wait until all ranks have called this function."""
    (folder / f"{where}-{rank}").touch()
    while not all((folder / f"{where}-{peer}").exists() for peer in range(int(os.environ["WORLD_SIZE"]))):
        time.sleep(0.01)


WAYS = {
    "sleep": asleep,
    "native": lambda: re.match("(a+)+$", "a" * 60 + "b"),
    "freeze": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "leave": lambda: os._exit(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "late kill": late_kill,  # when the others have left
    "none": lambda: None,
}

ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
folder = Path(sys.argv[1])
params = json.loads((folder / "job.json").read_text())["params"]
rank = int(os.environ["RANK"])
show_stacks_on_demand(folder, rank)
progress = Progress(folder, rank)
progress.tick("starting", 0)
threading.Thread(target=asleep, daemon=True).start()
meet("begun")
for step in range(1, params["steps"] + 1):
    progress.tick("step", step)
    time.sleep(0.05)
    if step == params["stop"] and rank == params["only_rank"]:
        print(params.get("say", ""), flush=True)
        WAYS[params["way"]]()
meet("taken")
progress.tick("finishing", params["steps"])
meet("through")
if rank == params["only_rank"]:
    WAYS[params.get("part", "none")]()
sys.exit(params.get("exit", 0))

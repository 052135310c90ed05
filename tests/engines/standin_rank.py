"""Simulate a rank without a training: it follows the launcher's protocol, and its job's params say what it does.

params: `seconds` to work, `exit` code at the end, `only_rank` to which a non-zero code applies, `deaf` to a release.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
released = threading.Event()


def release(*_: object) -> None:
    if not job["params"].get("deaf"):
        released.set()


def listen() -> None:
    for line in sys.stdin:
        if line.strip() in ("release", "stop"):
            release()
    os.kill(os.getpid(), signal.SIGKILL)


folder = Path(sys.argv[1])
job = json.loads((folder / "job.json").read_text())
signal.signal(signal.SIGTERM, release)
threading.Thread(target=listen, daemon=True).start()
rank = int(os.environ["RANK"])
print(
    json.dumps({name: value for name, value in os.environ.items() if name.startswith(("HOROVOD_", "MASTER_", "WORLD"))})
)
print("é" * 10, "rank", rank, "begins", flush=True)
if rank == 0:
    report = {
        "type": "report",
        "number": 1,
        "at": 1.0,
        "kind": "training",
        "step": 1,
        "epoch": 0.1,
        "metrics": {"loss": 1.0},
    }
    with (folder / "spool.jsonl").open("a") as spool:
        spool.write(json.dumps(report) + "\n")
if released.wait(job["params"].get("seconds", 0.1)):
    sys.exit(85)
time.sleep(0.05)
concerned = job["params"].get("only_rank", rank) == rank
sys.exit(job["params"].get("exit", 0) if concerned else 0)

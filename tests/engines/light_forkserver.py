"""Run a forkserver that imports nothing; its ranks follow their environment variables instead of training.

Variables: SECONDS to work, EXIT code at the end, WORKER for one forked process. Each rank prints a line: rank,
forkserver, open files, and its own number.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from kernel_backend.launch.forkserver.child import take_files
from kernel_backend.launch.forkserver.endpoint import ForkserverEndpoint
from kernel_backend.launch.forkserver.server import ForkserverLoop
from kernel_backend.parent_death import die_with

door = ForkserverEndpoint.at(Path(sys.argv[1]), sys.argv[2])
if (lock := door.lock()) is None:
    sys.exit(0)
if only := int(sys.argv[4]):
    die_with(only)
server = os.getpid()
mine = ForkserverLoop(door.listen(), float(sys.argv[3])).serve(door.address.exists)
if mine is None:
    door.remove()
    sys.exit(0)
os.close(lock)
die_with(server)
take_files(mine.request, mine.rank)
env = mine.request.orders[mine.rank].env
if "WORKER" in env:
    os.fork()
print(mine.rank, server, *sorted(os.listdir("/proc/self/fd")), os.getpid(), flush=True)
time.sleep(float(env.get("SECONDS", "0")))
sys.exit(int(env.get("EXIT", "0")))

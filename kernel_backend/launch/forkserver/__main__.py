"""Import torch once, then fork ranks: `python -m kernel_backend.launch.forkserver HOME KEY IDLE_S ONLY [FRAMEWORK]`.

The forkserver serves launchers whose ranks have the same key (`cache_key.py`). The first of them starts it; later ones
connect to it. It exits when idle. With a process id as ONLY, the forkserver serves that launcher alone and exits with
it; 0 means any launcher. It runs no user code, opens no device and enters no parallel region, since none of these
survive a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernel_backend.definition.forms.registry import BUILT_IN
from kernel_backend.launch.forkserver import cache_key
from kernel_backend.launch.forkserver.child import become
from kernel_backend.launch.forkserver.endpoint import ForkserverEndpoint
from kernel_backend.launch.forkserver.server import ForkserverLoop
from kernel_backend.parent_death import die_with

# torch._dynamo is included since the first step of an optimizer imports it.
PRELOADED = (
    "torch",
    "torch._dynamo",
    "kernel_backend.runner.rank_process",
    *(form.training.partition(":")[0] for form in BUILT_IN if not form.framework),
)
PRELOADED_IF_THERE = ("horovod.torch",)  # if missing, a rank that needs it reports the problem
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")  # querying the number of CUDA or ROCm devices opens them


def serve(endpoint: ForkserverEndpoint, idle_s: float, frameworks: Sequence[str] = ()) -> None:
    """Fork ranks for the launchers that connect to this endpoint, until no rank has run for `idle_s` seconds.

    `frameworks` are modules to import besides torch. Returns at once if another forkserver has the endpoint. In a
    forked process, this function runs the requested rank instead of returning.
    """
    lock = endpoint.lock()
    if lock is None:
        return
    server, listener = os.getpid(), endpoint.listen()  # launchers may connect while torch is being imported
    origin = cache_key.installed()
    imported = preload(frameworks)
    loop = ForkserverLoop(listener, idle_s)
    mine = loop.serve(lambda: endpoint.address.exists() and cache_key.installed() == origin)
    if mine is None:
        endpoint.remove()
        return
    os.close(lock)
    become(*mine, server, imported)


def preload(frameworks: Sequence[str] = ()) -> Mapping[str, str]:
    """Import the modules that every rank needs, and the modules `frameworks`.

    Returns the environment variables that these imports have set. Raises any error of an import, and RuntimeError if
    the imported state does not survive a fork. Launchers then start ranks without a forkserver, and the ranks report
    the problem.
    """
    before, began = dict(os.environ), time.monotonic()
    must_be_forkable()
    for name in PRELOADED:
        importlib.import_module(name)
    for name in (*PRELOADED_IF_THERE, *frameworks):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    must_be_forkable()
    gc.collect()
    gc.freeze()  # keeps pages shared with forked ranks, whose garbage collector then does not touch these objects
    print(f"imported in {time.monotonic() - began:.1f} s", flush=True)
    return {name: value for name, value in os.environ.items() if before.get(name) != value}


def must_be_forkable() -> None:
    """Raise RuntimeError if this process has other Python threads or open devices, which do not survive a fork."""
    threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    devices = [file for file in _files() if file.startswith(_DEVICES)]
    if threads or devices:
        raise RuntimeError(
            f"an import has started threads {threads} or opened devices {devices}: forks cannot have them"
        )


def _files() -> Iterator[str]:
    for file in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{file}")


if __name__ == "__main__":
    os.chdir("/")  # only the imports need the launcher's folder, for relative entries of PYTHONPATH
    if only := int(sys.argv[4]):
        die_with(only)
    serve(ForkserverEndpoint.at(Path(sys.argv[1]), sys.argv[2]), float(sys.argv[3]), sys.argv[5:])

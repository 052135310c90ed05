"""Turn a process that the forkserver has forked into a rank: set files, environment and folder, then train."""

from __future__ import annotations

import ctypes
import multiprocessing.process
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

from kernel_backend.launch.rank_spec import RankRequest
from kernel_backend.parent_death import die_with

_PR_SET_NAME = 15


def become(rank: int, request: RankRequest, server: int, imported: Mapping[str, str]) -> None:
    """Run this process, a fork of the forkserver, as rank number `rank` of a request; raise SystemExit at its end.

    The rank then behaves like a new interpreter that has imported torch. `imported` are the environment variables that
    this import has set, and `server` is the forkserver's pid. If the launcher has died meanwhile, the rank's stdin is
    closed, which the runner checks first.
    """
    die_with(server)
    os.setsid()
    show_as(
        f"rank {rank} {Path(request.folder).name}", f"{sys.orig_argv[0]} -P -m kernel_backend.runner {request.folder}"
    )
    take_files(request, rank)
    os.environ.clear()
    os.environ.update({**imported, **request.orders[rank].env})
    os.chdir(request.cwd)
    multiprocessing.process.ORIGINAL_DIR = request.cwd  # type: ignore[attr-defined]  # where spawned workers begin
    sys.argv = ["kernel_backend.runner", request.folder]
    runpy.run_module("kernel_backend.runner", run_name="__main__", alter_sys=True)


def show_as(name: str, command: str) -> None:
    """Set the process name and the command line that `ps`, `top` and the kernel's messages show for this process.

    The command line is written over that of the forkserver in memory, where the kernel reads it; one that is longer
    than the forkserver's is not written. A last byte that is not zero marks it as one string (as setproctitle does).
    """
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # proc(5): arg_start and arg_end
    text = command.encode() + b"\0"
    if start and start + len(text) < end:
        ctypes.memmove(start, text, len(text))
        ctypes.memset(end - 1, ord("."), 1)


def take_files(request: RankRequest, rank: int) -> None:
    """Make rank number `rank` use its own files of the request as stdin, stdout and stderr.

    Then close all files of the request, which the fork has inherited for all ranks.
    """
    order = request.orders[rank]
    for target, source in enumerate((order.stdin, order.output, order.output)):
        os.dup2(source, target)
    request.close()

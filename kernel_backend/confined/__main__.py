"""Run a process that parses users' code: read calls from stdin, write results to stdout, exit with the parent."""

from __future__ import annotations

import pickle
import resource
import sys
import traceback
from typing import Any

import psutil

from kernel_backend.confined import LENGTH, shallow
from kernel_backend.errors import DaylightError

LARGE = 256 * 2**20  # bytes of memory beyond which it exits, to be replaced by a new process


def main(cpu_s: float, memory: int) -> None:
    """Execute calls until stdin is closed, or this process has become large.

    `cpu_s` limits the seconds of CPU time of each call, and `memory` the bytes of address space.
    """
    calls, answers = sys.stdin.buffer, sys.stdout.buffer
    _limit(resource.RLIMIT_AS, memory)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while len(head := calls.read(LENGTH.size)) == LENGTH.size:
        question = calls.read(LENGTH.unpack(head)[0])
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + cpu_s) + 1)
        answer = pickle.dumps(_answer(question))
        answers.write(LENGTH.pack(len(answer)) + answer)
        answers.flush()
        if psutil.Process().memory_info().rss > LARGE:
            return


def _limit(what: int, most: int) -> None:
    """Set the resource limit `what` to `most`, or to the hard limit (`ulimit -H`) if that is lower."""
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _answer(question: bytes) -> tuple[str, Any]:
    try:
        function, arguments = pickle.loads(question)
        return "answer", shallow(function, *arguments)
    except DaylightError as error:
        found = error
    except Exception as error:
        traceback.print_exc()  # into the service's log
        found = DaylightError(f"the service made a mistake ({type(error).__name__}); its log has the details")
    return "error", {**found.to_json(), "status": found.http_status}


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))

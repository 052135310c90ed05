"""Bring inputs to this node in a process of its own: a rank must not have the threads and sockets of a store's client.

A line of JSON from stdin is the request. Lines on stdout are texts on progress; the last one is the result or an error.
The process then lives until stdin ends, as data may still be on its way.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack

from kernel_backend.errors import DaylightError
from kernel_backend.inputs.fetch import FetchRequest, fetch
from kernel_backend.parent_death import die_with


def main() -> int:
    """Serve the one request; return 1 if it fails."""
    die_with(os.getppid())
    request = FetchRequest.model_validate_json(sys.stdin.readline())
    with ExitStack() as held:
        try:
            found = fetch(request, lambda text: _tell(progress=text), held)
        except DaylightError as error:
            _tell(error=error.message)
            return 1
        _tell(folder=str(found.folder), places=found.places, notes=found.notes, arriving=found.arriving)
        sys.stdin.read()  # until the rank that asked holds the data, or ends
    return 0


def _tell(**values: object) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # without waiting for downloads that are of no use any more

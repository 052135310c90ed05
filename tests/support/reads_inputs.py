"""Read an input of a training in a process of its own, as a rank does, while it arrives; print what was found.

    python -m tests.support.reads_inputs FOLDER INPUT EPOCHS THREADS [known]

INPUT is an Input as JSON. Each epoch reads all files in another order, which is told in advance if it is `known`. The
first line of output has what listings say before anything is read, the second one the digests of each file by its name,
the most bytes that the cache had, and the seconds of each epoch.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernel_backend.errors import DaylightError
from kernel_backend.inputs.fetch import Input
from kernel_backend.inputs.node_cache import NodeCache, cache_root
from kernel_backend.runner.data import arriving
from kernel_backend.runner.data.inputs import _brought
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.progress import Progress


def main(folder: Path, asked: Input, epochs: int, threads: int, known: bool) -> None:
    """Print what was found; an error as {"error": TEXT}."""
    found = _brought((asked,), Instructions(), Spool(folder / "spool.jsonl", 0), Progress(folder, 0), patience=0.0)
    root = found["places"][asked.name]
    listed = {name: _seen(os.path.join(root, name)) for name in _names(root)}
    names, cache, sizes, seconds = sorted(listed), NodeCache(cache_root(os.environ)), [0], []
    digests: dict[str, set[str]] = {name: set() for name in names}
    orders = [random.Random(epoch).sample(names, len(names)) for epoch in range(epochs + 1)]

    def read(name: str) -> None:
        with open(os.path.join(root, name), "rb") as file:
            data = file.read()
        assert _seen(os.path.join(root, name)) == listed[name]
        digests[name].add(hashlib.sha256(data).hexdigest())
        sizes.append(cache.use().bytes)

    print(json.dumps({"listed": listed}), flush=True)
    for epoch in range(epochs):
        if known:
            for order in orders[:2] if epoch == 0 else [orders[epoch + 1]]:
                arriving.expect(os.path.join(root, name) for name in order)
        began = time.monotonic()
        with ThreadPoolExecutor(threads) as readers:
            list(readers.map(read, orders[epoch]))
        seconds.append(time.monotonic() - began)
    said = {name: sorted(each) for name, each in digests.items()}
    print(json.dumps({"digests": said, "most": max(sizes), "seconds": seconds, "notes": found["notes"]}), flush=True)


def _names(root: str) -> list[str]:
    return [os.path.relpath(os.path.join(at, name), root) for at, _, names in os.walk(root) for name in names]


def _seen(path: str) -> list[Any]:
    """Return what functions that look at files say of one."""
    status = os.stat(path)
    (entry,) = [each for each in os.scandir(os.path.dirname(path)) if each.path == path]
    return [
        status.st_size,
        status.st_mtime,
        [os.path.isfile(path), os.path.islink(path), os.access(path, os.R_OK), entry.is_file(), entry.is_symlink()],
        entry.stat().st_size,
        Path(path).resolve().name == os.path.basename(path),
    ]


if __name__ == "__main__":
    try:
        main(
            Path(sys.argv[1]), Input.model_validate_json(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]),
            "known" in sys.argv,
        )  # fmt: skip
    except DaylightError as error:
        print(json.dumps({"error": error.message}), flush=True)

"""Bring the remote data that a training names to this node before its code runs, and tell the code where it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kernel_backend.data.declared import is_url
from kernel_backend.durable import replacing
from kernel_backend.errors import InvalidDefinition
from kernel_backend.inputs.fetch import FetchRequest, Input, view_of
from kernel_backend.inputs.node_cache import NodeCache, cache_limit, cache_root
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Note
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.progress import Progress

VARIABLE = "DAYLIGHT_DATA"  # folder with a link to each input, by name
LOOK_S = 0.05
_held = ExitStack()  # what this process reads stays on the node until it ends


class Released(Exception):
    """The slots were asked for while data was fetched."""


def with_inputs(
    job: LaunchSpec, snapshot: Snapshot | None, instructions: Instructions, spool: Spool, progress: Progress
) -> LaunchSpec:
    """Bring a job's inputs to this node, and return the job with their places.

    Local rank 0 fetches them, and other ranks wait. `DAYLIGHT_DATA` is set to a folder with a link to each. Raises
    Released if the slots are to be released meanwhile, and InvalidDefinition if data cannot be had.
    """
    places, remote = dict[str, str](), list[Input]()
    for data in snapshot.data if snapshot else ():
        place = job.config.data_at.get(data.name, data.path)
        if data.into and is_url(place):
            listed = str(Path(job.code) / data.listed)
            remote.append(Input(name=data.into, url=place, digest=data.digest, listed=listed))
        elif data.into:  # a rerun reads a restored folder
            places[data.into] = place
    if remote:
        found = _brought(tuple(remote), instructions, spool, progress)
        places |= found["places"]
        os.environ[VARIABLE] = found["folder"]
        progress.tick("starting", 0)
    return job.model_copy(update={"inputs": places})


def _brought(inputs: tuple[Input, ...], instructions: Instructions, spool: Spool, progress: Progress) -> dict[str, Any]:
    """Return the folder of the inputs on this node, and their places by name."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    # Nodes may share the attempt's folder: the file is named by the first rank of its node.
    done = progress.folder / f"inputs-{progress.rank - local}.json"
    if local:
        while not done.exists():
            progress.tick("fetching", 0)
            if instructions.release:
                raise Released
            time.sleep(LOOK_S)
        found: dict[str, Any] = json.loads(done.read_bytes())
        return found
    root, limit = cache_root(os.environ), cache_limit(os.environ)
    cache = NodeCache(root, limit)
    for each in inputs:
        _held.enter_context(cache.leased(view_of(each)))
    request = FetchRequest(root=str(root), limit=limit, inputs=inputs)
    found = _fetched(request, instructions, progress)
    for text in found["notes"]:
        spool.say(Note(text=text))
    with replacing(done, durable=False) as file:
        file.write(json.dumps(found).encode())
    return found


def _fetched(request: FetchRequest, instructions: Instructions, progress: Progress) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "kernel_backend.inputs"]
    progress.tick("fetching", 0)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(request.model_dump_json() + "\n")
            child.stdin.flush()
            for line in child.stdout:
                progress.tick("fetching", 0)
                if instructions.release:
                    raise Released
                said = json.loads(line)
                if "progress" in said:
                    progress.tell(said["progress"])
                elif "error" in said:
                    raise InvalidDefinition(said["error"])
                else:
                    return dict(said)
        finally:
            child.kill()
    raise RuntimeError(f"the process that fetches data ended with exit code {child.returncode}: its log says why")

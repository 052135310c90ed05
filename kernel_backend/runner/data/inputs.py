"""Bring the remote data that a training names to this node before its code runs, and tell the code where it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kernel_backend.data.declared import is_url
from kernel_backend.data.views import link
from kernel_backend.durable import replacing
from kernel_backend.errors import InvalidDefinition
from kernel_backend.inputs.fetch import FetchRequest, Input, view_of
from kernel_backend.inputs.node_cache import NodeCache, cache_limit, cache_root
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Note
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.runner import native_opens
from kernel_backend.runner.data import arriving
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.progress import Progress

VARIABLE = "DAYLIGHT_DATA"  # folder with a link to each input, by name
PATIENCE_S = 60.0  # how long a training waits for all of its data rather than reading it as it comes
LOOK_S = 0.05
_PAUSE_S = 1.0  # before a process that was killed is followed by another
_held = ExitStack()  # what this process reads stays on the node until it ends


class Released(Exception):
    """The slots were asked for while data was fetched."""


def with_inputs(
    job: LaunchSpec,
    snapshot: Snapshot | None,
    instructions: Instructions,
    spool: Spool,
    progress: Progress,
    patience: float | None = None,
) -> LaunchSpec:
    """Bring a job's inputs to this node, and return the job with their places.

    Local rank 0 fetches them, and other ranks wait. If that would take more seconds than `patience`, they go on to
    arrive while this process reads. `DAYLIGHT_DATA` is set to a folder with a link to each. Raises Released if the
    slots are to be released meanwhile, and InvalidDefinition if data cannot be had.
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
        found = _brought(tuple(remote), instructions, spool, progress, patience)
        places |= found["places"]
        for name in (each.name for each in remote if each.name.startswith("./")):
            _show(Path(job.cwd, name).readlink(), places[name], name)
        os.environ[VARIABLE] = found["folder"]
        progress.tick("starting", 0)
    return job.model_copy(update={"inputs": places})


def _show(at: Path, place: str, name: str) -> None:
    """Make the link of this node, to which a path of the working folder leads, lead to data; see `working_folder`."""
    try:
        link(at, Path(place))
    except OSError as error:
        raise InvalidDefinition(
            f"{at}: {error.strerror or error}: the data at {name} needs a link there, on the node's own disk: make "
            f"{at.parent} writable, or take the data by a name"
        ) from error


def patience(job: LaunchSpec) -> float | None:
    """Return how many seconds a training waits before it reads its inputs as they arrive; None: until they are here.

    Code that imports a library which reads files natively would not find what has not arrived.
    """
    if job.config.fetch == "during":
        return 0.0
    whole = job.config.fetch == "before" or job.config.uses_model
    native = any(native_opens.untold(path.read_bytes()) for path in Path(job.code).rglob("*.py"))
    return None if whole or native else PATIENCE_S


def _brought(
    inputs: tuple[Input, ...],
    instructions: Instructions,
    spool: Spool,
    progress: Progress,
    patience: float | None = None,
) -> dict[str, Any]:
    """Return the folder of the inputs on this node, and their places by name."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    # Nodes may share the attempt's folder: the file is named by the first rank of its node.
    done = progress.folder / f"inputs-{progress.rank - local}.json"
    fetcher = None
    if local:
        while not done.exists():
            progress.tick("fetching", 0)
            if instructions.release:
                raise Released
            time.sleep(LOOK_S)
        found: dict[str, Any] = json.loads(done.read_bytes())
    else:
        root, limit = cache_root(os.environ), cache_limit(os.environ)
        cache = NodeCache(root, limit)
        for each in inputs:
            _held.enter_context(cache.leased(view_of(each)))
        fetcher = _Fetcher(FetchRequest(root=str(root), limit=limit, patience=patience, inputs=inputs), done)
        found = fetcher.fetch(instructions, progress)
        for text in found["notes"]:
            spool.say(Note(text=text))
    if found["arriving"]:
        arriving.begin(arriving.Arriving(tuple(found["arriving"]), str(done)))
        arriving.watch(progress.alive, progress.tell)
    if fetcher is not None:
        fetcher.keep(bool(found["arriving"]))
    if not found["arriving"]:
        progress.tell("")
    return found


class _Fetcher:
    """Process that fetches the inputs of a node's ranks, and the file in which they find the result."""

    def __init__(self, request: FetchRequest, told: Path) -> None:
        self._request, self._told = request, told
        self._child = self._started()

    def fetch(self, instructions: Instructions, progress: Progress) -> dict[str, Any]:
        """Return the result, once the training may begin; raise Released, or InvalidDefinition if data is not there."""
        progress.tick("fetching", 0)
        try:
            for said in self._lines():
                progress.tick("fetching", 0)
                if instructions.release:
                    raise Released
                if "progress" in said:
                    progress.tell(said["progress"])
                elif "error" in said:
                    raise InvalidDefinition(said["error"])
                else:
                    self._tell(said)
                    return said
        except BaseException:
            self._child.kill()
            raise
        code = self._child.wait()
        raise RuntimeError(f"the process that fetches data ended with exit code {code}: its log says why")

    def keep(self, arriving: bool) -> None:
        """Let the process go on while data is arriving, and start another if it is killed; else end it."""
        if arriving:
            threading.Thread(target=self._keep, name="fetcher", daemon=True).start()
        else:
            self._child.kill()
            self._child.communicate()

    def _keep(self) -> None:
        while True:
            self._child.wait()
            time.sleep(_PAUSE_S)
            self._request = self._request.model_copy(update={"patience": 0.0})
            self._child = self._started()
            for said in self._lines():
                if "error" in said:
                    self._tell(said)
                    return
                if "places" in said:
                    break

    def _started(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-m", "kernel_backend.inputs"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdin is not None
        child.stdin.write(self._request.model_dump_json() + "\n")
        child.stdin.flush()
        return child

    def _lines(self) -> Iterator[dict[str, Any]]:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            yield json.loads(line)

    def _tell(self, said: dict[str, Any]) -> None:
        with replacing(self._told, durable=False) as file:
            file.write(json.dumps(said).encode())

"""Implement the operations of an agent, one method each: work in its user's workspace, with the user's permissions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from kernel_backend.agent.engines import AgentEngines
from kernel_backend.agent.records import Greeting, ListedCheckpoint
from kernel_backend.checkpoints.base import Checkpoints, Manifest, Part, Streamed, dump, parse
from kernel_backend.checkpoints.storage import CheckpointStorage, open_storage
from kernel_backend.checkpoints.verify import files_of
from kernel_backend.engines.base import CheckContext
from kernel_backend.home import attempt_folder
from kernel_backend.model.ids import parse_attempt
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import SpoolPosition
from kernel_backend.model.snapshot import Environment
from kernel_backend.workspaces.base import Contents, SearchClass, SearchClassProcess
from kernel_backend.workspaces.own import OwnWorkspace

T = TypeVar("T")


class AgentOperations:
    """Operations that an agent performs when the service requests them by name.

    Arguments are JSON values; records are passed as JSON text. `body` yields the bytes that follow the request. A
    method returns a value that converts to JSON, or Contents (a stream of bytes).
    """

    def __init__(self, home: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._home, self._loop = home, loop
        self._workspace, self._engines = OwnWorkspace(home), AgentEngines(home)
        self._storage = CheckpointStorage(str(home / "checkpoints"))

    def hello(self, body: Iterator[bytes]) -> Greeting:
        """Return this agent's uid, process id and home folder, by which the service sees that it answers."""
        return Greeting(uid=os.getuid(), pid=os.getpid(), home=str(self._home))

    # Gangs

    def submit(self, body: Iterator[bytes], job: str, token: str, pool: str | None = None) -> None:
        """Start the gang of an attempt, from its launch spec (JSON) and its secret token.

        `pool` is the record of its pool as JSON, None for this machine.
        """
        self._done(self._engines.of(pool).submit(self._here(job), token))

    def statuses(self, body: Iterator[bytes], of: list[str], pool: str | None = None) -> Any:
        """Return the statuses of the gangs of these attempts, given by their keys."""
        return self._done(self._engines.of(pool).statuses([parse_attempt(key) for key in of]))

    def release(self, body: Iterator[bytes], key: str, pool: str | None = None) -> None:
        """Ask a gang to save a checkpoint and exit."""
        self._done(self._engines.of(pool).release(parse_attempt(key)))

    def kill(self, body: Iterator[bytes], key: str, pool: str | None = None) -> None:
        """Kill all processes of a gang; raise Unconfirmed if one may still run."""
        self._done(self._engines.of(pool).kill(parse_attempt(key)))

    def records(self, body: Iterator[bytes], key: str, after: int, begin: dict[str, int]) -> Any:
        """Return a page of records from a gang's spool file: from offset `begin` on, with numbers above `after`.

        The spool is the file to which rank 0 appends its records.
        """
        return self._done(self._engines.local.records(parse_attempt(key), after, SpoolPosition.model_validate(begin)))

    def logs(self, body: Iterator[bytes], key: str, rank: int, offset: int, tail: int | None) -> Any:
        """Return a part of a rank's log as text: from byte `offset` on, or its last `tail` bytes."""
        return self._done(self._engines.local.logs(parse_attempt(key), rank, offset, tail))

    def set_gang_aside(self, body: Iterator[bytes], key: str, pool: str | None = None) -> None:
        """Kill the processes of an attempt and rename its folder, so that another attempt can have its key.

        That is needed if the folder belongs to an attempt that a restored database does not know.
        """
        self._done(self._engines.of(pool).set_aside(parse_attempt(key)))

    def forget(self, body: Iterator[bytes], key: str, pool: str | None = None) -> None:
        """Stop reporting the status of a gang that has ended."""
        self._done(self._engines.of(pool).forget(parse_attempt(key)))

    def check(self, body: Iterator[bytes], pool: str, python: str, checkpoints: str, urls: list[str]) -> Any:
        """Check a pool as this user and return the findings.

        `checkpoints` is the folder or URL of checkpoints, "" for the folder in the user's workspace. `urls` are the
        addresses of the service.
        """
        context = CheckContext(python, checkpoints or str(self._home / "checkpoints"), tuple(urls))
        return self._done(self._engines.of_pool(pool).check(context))

    # Code, artifacts, searches and environments

    def unpack(self, body: Iterator[bytes], job: str) -> Any:
        """Unpack the archive in `body`, the code of an attempt, and return the attempt's working folder."""
        return self._workspace.unpack(self._here(job), b"".join(body))

    def largest_number(self, body: Iterator[bytes]) -> int:
        """Return the largest number of an experiment that has a folder in the workspace."""
        return self._workspace.largest_number()

    def last_attempt(self, body: Iterator[bytes], experiment: int, trial: int, since: int) -> int:
        """Return the number of the last attempt of a trial that has a folder, counted on from `since` without a gap.

        If attempt `since + 1` has none, return `since`.
        """
        return self._workspace.last_attempt(experiment, trial, since)

    def usage(self, body: Iterator[bytes], experiment: int) -> dict[str, int]:
        """Return the bytes of disk that the folders of an experiment use, by kind of folder."""
        return self._workspace.usage(experiment)

    def disk(self, body: Iterator[bytes]) -> Any:
        """Return the bytes of disk that the folders of all experiments and environments use, and how many are free."""
        return self._workspace.disk()

    def remove(self, body: Iterator[bytes], experiment: int) -> None:
        """Delete the folders of an experiment in the user's workspace."""
        self._workspace.remove(experiment)

    def remove_logs(self, body: Iterator[bytes], experiment: int) -> None:
        """Delete the logs, records and unpacked code of an ended experiment."""
        self._workspace.remove_logs(experiment)

    def artifact(self, body: Iterator[bytes], experiment: int, trial: int, name: str) -> Contents:
        """Return the bytes of an artifact's file."""
        return self._workspace.artifact(experiment, trial, name)

    def asker(self, body: Iterator[bytes], asked: str) -> SearchClassProcess:
        """Start a process with the user's search class; later requests on the same socket call its methods."""
        return self._workspace.asker(SearchClass.model_validate_json(asked), b"".join(body))

    def lock(self, body: Iterator[bytes], environment: str) -> Any:
        """Return the lock of an environment (exact versions of all its packages); None if none is stored."""
        return self._workspace.environments.lock(Environment.model_validate_json(environment))

    def make_lock(self, body: Iterator[bytes], environment: str, python: str) -> Any:
        """Return the lock of an environment; if none is stored, make it with the interpreter `python`, and store it."""
        return self._workspace.environments.make_lock(Environment.model_validate_json(environment), Path(python))

    def python(self, body: Iterator[bytes], environment: str) -> Any:
        """Return the path of an environment's interpreter; None if the environment is not built."""
        return self._workspace.environments.python(Environment.model_validate_json(environment))

    def version(self, body: Iterator[bytes], environment: str) -> Any:
        """Return the Python version of an environment; None if the environment is not built."""
        return self._workspace.environments.version(Environment.model_validate_json(environment))

    def build(self, body: Iterator[bytes], environment: str, python: str) -> Any:
        """Build an environment with the interpreter `python`, unless it is built, and return its interpreter."""
        return self._workspace.environments.build(Environment.model_validate_json(environment), Path(python))

    def interpreter(self, body: Iterator[bytes], python: str, packages: list[str]) -> Any:
        """Return the interpreter `python` (the agent's own, if that is missing here), and which packages it lacks."""
        return self._workspace.environments.interpreter(python, packages)

    def present(self, body: Iterator[bytes], python: str) -> Any:
        """Return a description of the environment that an interpreter has now."""
        return self._workspace.environments.present(Path(python))

    # Checkpoints

    def free(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> int | None:
        """Return how many bytes are free in the file system of a trial's checkpoints; None if unknown."""
        return self._place(experiment, trial, uid).free()

    def write(
        self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str, name: str, size: int
    ) -> Any:
        """Store one part (a file) of a checkpoint, whose bytes are in `body`, and return its entry for the manifest."""
        return self._place(experiment, trial, uid).write(checkpoint, name, Streamed(size, lambda: body))

    def reuse(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str) -> bool:
        """Store a part of a checkpoint as a link to an equal part of another one, which `body` describes.

        Returns False if that is impossible.
        """
        part = Part.model_validate_json(b"".join(body))
        return self._place(experiment, trial, uid).reuse(checkpoint, part)

    def commit(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> None:
        """Commit a checkpoint, by writing its manifest, which is in `body`."""
        self._place(experiment, trial, uid).commit(parse(b"".join(body)))

    def committed(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> list[ListedCheckpoint]:
        """Return all committed checkpoints of a trial, oldest first."""
        return [_listed(each) for each in self._place(experiment, trial, uid).committed()]

    def newest_verified(
        self, body: Iterator[bytes], experiment: int, trial: int, uid: str, fence: int | None, upto: list[int] | None
    ) -> Any:
        """Return a trial's newest intact checkpoint (None without one), and what is wrong with newer ones.

        Checkpoints of attempts with numbers from `fence` on are ignored, and those newer than `upto`, a (step,
        attempt).
        """
        limit = (upto[0], upto[1]) if upto else None
        found, problems = self._place(experiment, trial, uid).newest_verified(fence, limit)
        return (_listed(found) if found else None), problems

    def verify(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> None:
        """Verify every byte of the checkpoint whose manifest is in `body`.

        Raises CheckpointDamaged, which names the first damaged part.
        """
        place, manifest = self._kept(body, experiment, trial, uid)
        place.verify(manifest)

    def stream(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, name: str, offset: int) -> Contents:
        """Return the bytes of a part of a checkpoint from `offset` on, after the whole part was verified.

        The manifest of the checkpoint is in `body`.
        """
        place, manifest = self._kept(body, experiment, trial, uid)
        stream, part = place.stream(manifest, name, offset), manifest.part(name)
        assert part is not None  # otherwise `stream` has raised
        return Contents(max(0, part.size - offset), (bytes(piece) for piece in stream))

    def set_aside(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str) -> None:
        """Move a damaged checkpoint to quarantine, so that it is not listed any more."""
        self._place(experiment, trial, uid).set_aside(checkpoint)

    def aside(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> Any:
        """Return the damaged checkpoints of a trial that are in quarantine."""
        return self._place(experiment, trial, uid).aside()

    def discard(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str) -> None:
        """Delete a checkpoint, whether or not it is committed."""
        self._place(experiment, trial, uid).discard(checkpoint)

    def sweep(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, attempt: int) -> None:
        """Delete the uncommitted checkpoints of a trial that attempts with numbers below `attempt` have left."""
        self._place(experiment, trial, uid).sweep(attempt)

    def clear(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> None:
        """Delete the empty checkpoint folder of a trial, with its fences (records of which attempt may write there)."""
        self._place(experiment, trial, uid).clear()

    def pin(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str, pinned: bool) -> None:
        """Pin a checkpoint, so that no rule deletes it, or unpin it."""
        self._place(experiment, trial, uid).pin(checkpoint, pinned)

    def claim(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, attempt: int) -> None:
        """Record that this attempt continues its trial; checkpoints of older attempts are then refused."""
        self._place(experiment, trial, uid).fence(attempt)

    def names(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> Any:
        """Return the names of all files and folders in a trial's checkpoint folder."""
        return self._place(experiment, trial, uid).names()

    def claimed(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> int:
        """Return the highest number of an attempt that was recorded by `claim` for a trial; 0 if none was."""
        return self._place(experiment, trial, uid).claimed()

    # Helpers

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _here(self, text: str) -> LaunchSpec:
        """Return a launch spec (JSON) with the folders of this workspace filled in, which the service does not know."""
        job = LaunchSpec.model_validate_json(text)
        here = {"home": str(self._home), "code": str(attempt_folder(self._home, job.id) / "code")}
        if "://" not in job.checkpoints:
            here["checkpoints"] = self._storage.where(job.experiment, job.trial)
        return job.model_copy(update=here)

    def _place(self, experiment: int, trial: int, uid: str) -> Checkpoints:
        return open_storage(self._storage.where(experiment, trial), uid)

    def _kept(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> tuple[Checkpoints, Manifest]:
        return self._place(experiment, trial, uid), parse(b"".join(body))


def _listed(manifest: Manifest) -> ListedCheckpoint:
    return ListedCheckpoint(manifest=dump(manifest).decode(), pinned=manifest.pinned, files=files_of(manifest))


OPERATIONS = frozenset(name for name in vars(AgentOperations) if not name.startswith("_"))

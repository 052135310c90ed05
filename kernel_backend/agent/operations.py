"""Implement the operations of an agent, one method each, in its user's workspace and with the user's permissions."""

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
    """Operations that an agent performs for the service, by name.

    Arguments are JSON values, with records as JSON text; `body` has the bytes that follow the request. A method
    returns a value that converts to JSON, or Contents.
    """

    def __init__(self, home: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._home, self._loop = home, loop
        self._workspace, self._engines = OwnWorkspace(home), AgentEngines(home)
        self._storage = CheckpointStorage(str(home / "checkpoints"))

    def hello(self, body: Iterator[bytes]) -> Greeting:
        """Return this agent's uid, process id and home folder, so that the service can check them."""
        return Greeting(uid=os.getuid(), pid=os.getpid(), home=str(self._home))

    # Gangs

    def submit(self, body: Iterator[bytes], job: str, token: str, pool: str | None = None) -> None:
        """Start the gang of an attempt, from its launch spec (JSON) and its secret token."""
        self._done(self._engines.of(pool).submit(self._here(job), token))

    def statuses(self, body: Iterator[bytes], of: list[str], pool: str | None = None) -> Any:
        """Return the statuses of the gangs with the keys `of`."""
        return self._done(self._engines.of(pool).statuses([parse_attempt(key) for key in of]))

    def release(self, body: Iterator[bytes], key: str, pool: str | None = None) -> None:
        """Ask a gang to commit a checkpoint and exit."""
        self._done(self._engines.of(pool).release(parse_attempt(key)))

    def kill(self, body: Iterator[bytes], key: str, pool: str | None = None) -> None:
        """Kill all processes of a gang."""
        self._done(self._engines.of(pool).kill(parse_attempt(key)))

    def records(self, body: Iterator[bytes], key: str, after: int, begin: dict[str, int]) -> Any:
        """Return a page of a gang's spool: the records above number `after`, read from position `begin`."""
        return self._done(self._engines.local.records(parse_attempt(key), after, SpoolPosition.model_validate(begin)))

    def logs(self, body: Iterator[bytes], key: str, rank: int, offset: int, tail: int | None) -> Any:
        """Return a piece of a rank's log as text: from byte `offset` on, or its last `tail` bytes."""
        return self._done(self._engines.local.logs(parse_attempt(key), rank, offset, tail))

    def set_gang_aside(self, body: Iterator[bytes], key: str, pool: str | None = None) -> None:
        """Kill a gang's processes and rename its folder, which belongs to an attempt of a lost database."""
        self._done(self._engines.of(pool).set_aside(parse_attempt(key)))

    def forget(self, body: Iterator[bytes], key: str, pool: str | None = None) -> None:
        """Stop reporting the status of an ended gang."""
        self._done(self._engines.of(pool).forget(parse_attempt(key)))

    def check(self, body: Iterator[bytes], pool: str, python: str, checkpoints: str, urls: list[str]) -> Any:
        """Check a pool as this user, and return the findings."""
        context = CheckContext(python, checkpoints or str(self._home / "checkpoints"), tuple(urls))
        return self._done(self._engines.of_pool(pool).check(context))

    # Code, artifacts, searches and environments

    def unpack(self, body: Iterator[bytes], job: str) -> Any:
        """Unpack the code of an attempt, and return its working folder."""
        return self._workspace.unpack(self._here(job), b"".join(body))

    def largest_number(self, body: Iterator[bytes]) -> int:
        """Return the largest experiment number that any folder of the workspace has."""
        return self._workspace.largest_number()

    def last_attempt(self, body: Iterator[bytes], experiment: int, trial: int, since: int) -> int:
        """Return the last attempt number up to which all after `since` have folders; else `since`."""
        return self._workspace.last_attempt(experiment, trial, since)

    def usage(self, body: Iterator[bytes], experiment: int) -> dict[str, int]:
        """Return the disk usage of an experiment's folders in bytes, by kind of folder."""
        return self._workspace.usage(experiment)

    def disk(self, body: Iterator[bytes]) -> Any:
        """Return the disk usage in bytes of all experiments' and environments' folders."""
        return self._workspace.disk()

    def remove(self, body: Iterator[bytes], experiment: int) -> None:
        """Delete an experiment's folders in the user's workspace."""
        self._workspace.remove(experiment)

    def remove_logs(self, body: Iterator[bytes], experiment: int) -> None:
        """Delete the logs, records and unpacked code of an ended experiment."""
        self._workspace.remove_logs(experiment)

    def artifact(self, body: Iterator[bytes], experiment: int, trial: int, name: str) -> Contents:
        """Return the bytes of an artifact's file."""
        return self._workspace.artifact(experiment, trial, name)

    def asker(self, body: Iterator[bytes], asked: str) -> SearchClassProcess:
        """Start a search class in a new process; later requests on the same socket call it."""
        return self._workspace.asker(SearchClass.model_validate_json(asked), b"".join(body))

    def lock(self, body: Iterator[bytes], environment: str) -> Any:
        """Return the stored lock of an environment; None if there is none."""
        return self._workspace.environments.lock(Environment.model_validate_json(environment))

    def make_lock(self, body: Iterator[bytes], environment: str, python: str) -> Any:
        """Return the lock of an environment, made with the interpreter `python` if there is none."""
        return self._workspace.environments.make_lock(Environment.model_validate_json(environment), Path(python))

    def python(self, body: Iterator[bytes], environment: str) -> Any:
        """Return the interpreter of an environment; None if it is not built."""
        return self._workspace.environments.python(Environment.model_validate_json(environment))

    def version(self, body: Iterator[bytes], environment: str) -> Any:
        """Return the Python version of an environment; None if it is not built."""
        return self._workspace.environments.version(Environment.model_validate_json(environment))

    def build(self, body: Iterator[bytes], environment: str, python: str) -> Any:
        """Build an environment if needed, and return its interpreter."""
        return self._workspace.environments.build(Environment.model_validate_json(environment), Path(python))

    def interpreter(self, body: Iterator[bytes], python: str, packages: list[str]) -> Any:
        """Return the interpreter `python` (or the agent's, if it is missing here) and the packages that it lacks."""
        return self._workspace.environments.interpreter(python, packages)

    def present(self, body: Iterator[bytes], python: str) -> Any:
        """Return a description of an interpreter's present environment."""
        return self._workspace.environments.present(Path(python))

    # Checkpoints

    def free(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> int | None:
        """Return the free bytes of the file system of a trial's checkpoints; None if unknown."""
        return self._place(experiment, trial, uid).free()

    def write(
        self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str, name: str, size: int
    ) -> Any:
        """Store one part of a checkpoint from the request's body, and return its manifest entry."""
        return self._place(experiment, trial, uid).write(checkpoint, name, Streamed(size, lambda: body))

    def reuse(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str) -> bool:
        """Store a part as a link to that of another checkpoint; the body describes the part.

        Returns False if that is impossible.
        """
        part = Part.model_validate_json(b"".join(body))
        return self._place(experiment, trial, uid).reuse(checkpoint, part)

    def commit(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> None:
        """Write the manifest in the request's body, which commits a checkpoint."""
        self._place(experiment, trial, uid).commit(parse(b"".join(body)))

    def committed(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> list[ListedCheckpoint]:
        """Return all committed checkpoints of a trial, oldest first."""
        return [_listed(each) for each in self._place(experiment, trial, uid).committed()]

    def newest_verified(
        self, body: Iterator[bytes], experiment: int, trial: int, uid: str, fence: int | None, upto: list[int] | None
    ) -> Any:
        """Return a trial's newest intact checkpoint, and what is wrong with newer ones."""
        limit = (upto[0], upto[1]) if upto else None
        found, problems = self._place(experiment, trial, uid).newest_verified(fence, limit)
        return (_listed(found) if found else None), problems

    def verify(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> None:
        """Verify every byte of a checkpoint; raise CheckpointDamaged, which names the first damaged part."""
        place, manifest = self._kept(body, experiment, trial, uid)
        place.verify(manifest)

    def stream(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, name: str, offset: int) -> Contents:
        """Return the verified bytes of a part of a checkpoint."""
        place, manifest = self._kept(body, experiment, trial, uid)
        stream, part = place.stream(manifest, name, offset), manifest.part(name)
        assert part is not None  # otherwise `stream` has raised
        return Contents(max(0, part.size - offset), (bytes(piece) for piece in stream))

    def set_aside(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str) -> None:
        """Quarantine a damaged checkpoint, so that it is not listed again."""
        self._place(experiment, trial, uid).set_aside(checkpoint)

    def aside(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> Any:
        """Return a trial's quarantined checkpoints."""
        return self._place(experiment, trial, uid).aside()

    def discard(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str) -> None:
        """Delete a checkpoint, committed or not."""
        self._place(experiment, trial, uid).discard(checkpoint)

    def sweep(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, attempt: int) -> None:
        """Delete a trial's uncommitted checkpoints of attempts before `attempt`."""
        self._place(experiment, trial, uid).sweep(attempt)

    def clear(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> None:
        """Delete the fences and the empty folder of a trial without checkpoints."""
        self._place(experiment, trial, uid).clear()

    def pin(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str, pinned: bool) -> None:
        """Pin a checkpoint against all retention rules, or unpin it."""
        self._place(experiment, trial, uid).pin(checkpoint, pinned)

    def claim(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, attempt: int) -> None:
        """Record that an attempt continues its trial, which fences older attempts."""
        self._place(experiment, trial, uid).fence(attempt)

    def names(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> Any:
        """Return the names of all entries (checkpoints, fences and others) in a trial's checkpoint folder."""
        return self._place(experiment, trial, uid).names()

    def claimed(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> int:
        """Return the highest attempt number of which a fence is stored for a trial; 0 for none."""
        return self._place(experiment, trial, uid).claimed()

    # Helpers

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _here(self, text: str) -> LaunchSpec:
        """Return a launch spec (JSON) completed by the folders of this workspace, which the service does not know."""
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

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

    Arguments are JSON values. Pydantic models (`job`, `pool`, `environment`) are passed as JSON text, and attempts as
    their keys (`key`). `body` yields the bytes that follow the request. In the operations on checkpoints, `uid` is the
    unique id of the trial, which its checkpoints record: checkpoints of an earlier trial with the same numbers are
    ignored. A method returns a value that converts to JSON, or Contents (a stream of bytes).
    """

    def __init__(self, home: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._home, self._loop = home, loop
        self._workspace, self._engines = OwnWorkspace(home), AgentEngines(home)
        self._storage = CheckpointStorage(str(home / "checkpoints"))

    def hello(self, body: Iterator[bytes]) -> Greeting:
        """Return this agent's uid, process id and home folder; the answer also shows that the agent works."""
        return Greeting(uid=os.getuid(), pid=os.getpid(), home=str(self._home))

    # Gangs

    def submit(self, body: Iterator[bytes], job: str, token: str, pool: str | None = None) -> None:
        """Start the gang (all ranks) of an attempt, from its launch spec `job` and its secret token.

        `pool` is the attempt's pool as JSON; None means this machine.
        """
        self._done(self._engines.of(pool).submit(self._here(job), token))

    def statuses(self, body: Iterator[bytes], of: list[str], pool: str | None = None) -> Any:
        """Return the statuses of the gangs of the attempts whose keys are in `of`, from the engine of one pool."""
        return self._done(self._engines.of(pool).statuses([parse_attempt(key) for key in of]))

    def release(self, body: Iterator[bytes], key: str, pool: str | None = None) -> None:
        """Make the gang of an attempt save a checkpoint and exit, without waiting for that."""
        self._done(self._engines.of(pool).release(parse_attempt(key)))

    def kill(self, body: Iterator[bytes], key: str, pool: str | None = None) -> None:
        """Kill all processes of a gang; raise Unconfirmed if one may still run."""
        self._done(self._engines.of(pool).kill(parse_attempt(key)))

    def records(self, body: Iterator[bytes], key: str, after: int, begin: dict[str, int]) -> Any:
        """Return a page of the records that rank 0 has appended to the attempt's spool file.

        Reading begins at the position `begin` (`{"offset": BYTES, "number": N}`); records with numbers up to `after`
        are left out.
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
        """Stop reporting the status of a gang that has ended, whose end the service has stored."""
        self._done(self._engines.of(pool).forget(parse_attempt(key)))

    def check(self, body: Iterator[bytes], pool: str, python: str, checkpoints: str, urls: list[str], data: str) -> Any:
        """Check a pool with this user's permissions and return the findings.

        `python` is the path of the interpreter that runs trainings. `checkpoints` is the folder or URL of checkpoints,
        "" for the folder in the user's workspace. `urls` are the addresses of the service, and `data` is the URL of
        remote data that the nodes read, "" for none.
        """
        context = CheckContext(python, checkpoints or str(self._home / "checkpoints"), tuple(urls), data=data)
        return self._done(self._engines.of_pool(pool).check(context))

    # Code, artifacts, searches and environments

    def unpack(self, body: Iterator[bytes], job: str) -> Any:
        """Unpack the archive in `body`, the code of the attempt that `job` describes, and return its working folder."""
        return self._workspace.unpack(self._here(job), b"".join(body))

    def largest_number(self, body: Iterator[bytes]) -> int:
        """Return the largest experiment number in the names of the workspace's folders; 0 if there is none."""
        return self._workspace.largest_number()

    def last_attempt(self, body: Iterator[bytes], experiment: int, trial: int, since: int) -> int:
        """Return the number of a trial's last attempt: count up from `since` while the next number has a folder.

        If attempt `since + 1` has no folder, return `since`.
        """
        return self._workspace.last_attempt(experiment, trial, since)

    def usage(self, body: Iterator[bytes], experiment: int) -> dict[str, int]:
        """Return how many bytes of disk the folders of an experiment use, except checkpoints, by kind of folder.

        The kind is the name of the parent folder, such as `attempts`.
        """
        return self._workspace.usage(experiment)

    def disk(self, body: Iterator[bytes]) -> Any:
        """Return how many bytes of disk each experiment and all environments use, and the free and total bytes."""
        return self._workspace.disk()

    def remove(self, body: Iterator[bytes], experiment: int) -> None:
        """Delete the folders of an experiment in the user's workspace, except its checkpoints."""
        self._workspace.remove(experiment)

    def remove_logs(self, body: Iterator[bytes], experiment: int) -> None:
        """Delete the logs, the spool records and the unpacked code of an ended experiment."""
        self._workspace.remove_logs(experiment)

    def artifact(self, body: Iterator[bytes], experiment: int, trial: int, name: str) -> Contents:
        """Return the content of the file `name` that a trial has stored as an artifact."""
        return self._workspace.artifact(experiment, trial, name)

    def asker(self, body: Iterator[bytes], asked: str) -> SearchClassProcess:
        """Prepare a process that runs the user's search class, whose code is the archive in `body`; return its client.

        `asked` has the interpreter, the settings and the search space for it, a `SearchClass` as JSON. Later requests
        on the same socket call the methods of the class.
        """
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
        """Return the path `python`, or that of the agent's own interpreter if this machine has no such file.

        In the second case, the result also names those of `packages` (which a training imports) that the agent's lacks.
        """
        return self._workspace.environments.interpreter(python, packages)

    def present(self, body: Iterator[bytes], python: str) -> Any:
        """Return what is installed for the interpreter `python` now, and on which machine, as an Environment."""
        return self._workspace.environments.present(Path(python))

    # Checkpoints

    def free(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> int | None:
        """Return how many bytes are free in the file system of a trial's checkpoints; None if unknown.

        `uid` is the trial's unique id; `body` is not used.
        """
        return self._place(experiment, trial, uid).free()

    def write(
        self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str, name: str, size: int
    ) -> Any:
        """Store one part of a checkpoint, the file `name` of `size` bytes, whose content is in `body`.

        Returns the part's entry for the checkpoint's manifest.
        """
        return self._place(experiment, trial, uid).write(checkpoint, name, Streamed(size, lambda: body))

    def reuse(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str) -> bool:
        """Add a part to a checkpoint by linking or copying an equal file of another checkpoint of the experiment.

        This saves sending its bytes. `body` has that file's entry in the manifest of the other checkpoint. Returns
        False if there is no such file or the storage cannot do it.
        """
        part = Part.model_validate_json(b"".join(body))
        return self._place(experiment, trial, uid).reuse(checkpoint, part)

    def commit(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> None:
        """Commit a checkpoint, by writing its manifest, which is in `body`.

        `uid` is the unique id of the trial, given by the numbers `experiment` and `trial`.
        """
        self._place(experiment, trial, uid).commit(parse(b"".join(body)))

    def committed(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> list[ListedCheckpoint]:
        """Return all committed checkpoints of a trial, oldest first.

        `uid` is the trial's unique id; `body` is not used.
        """
        return [_listed(each) for each in self._place(experiment, trial, uid).committed()]

    def newest_verified(
        self, body: Iterator[bytes], experiment: int, trial: int, uid: str, fence: int | None, upto: list[int] | None
    ) -> Any:
        """Return a trial's newest intact checkpoint (None without one), and a list of what is wrong with newer ones.

        Checkpoints that attempt `fence` or a later one has saved are ignored, and so are those newer than `upto`, a
        pair (step, attempt).
        """
        limit = (upto[0], upto[1]) if upto else None
        found, problems = self._place(experiment, trial, uid).newest_verified(fence, limit)
        return (_listed(found) if found else None), problems

    def verify(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> None:
        """Verify every byte of the checkpoint whose manifest is in `body`.

        `uid` is the trial's unique id. Raises CheckpointDamaged, which names the first damaged part.
        """
        place, manifest = self._kept(body, experiment, trial, uid)
        place.verify(manifest)

    def stream(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, name: str, offset: int) -> Contents:
        """Return the bytes of the part `name` of a checkpoint from `offset` on, after the whole part was verified.

        The manifest of the checkpoint is in `body`. `uid` is the unique id of its trial.
        """
        place, manifest = self._kept(body, experiment, trial, uid)
        stream, part = place.stream(manifest, name, offset), manifest.part(name)
        assert part is not None  # otherwise `stream` has raised
        return Contents(max(0, part.size - offset), (bytes(piece) for piece in stream))

    def set_aside(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str) -> None:
        """Move a damaged checkpoint of a trial to quarantine, so that it is not listed any more.

        `uid` is the trial's unique id; `body` is not used.
        """
        self._place(experiment, trial, uid).set_aside(checkpoint)

    def aside(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> Any:
        """Return the damaged checkpoints of a trial that are in quarantine.

        `uid` is the trial's unique id; `body` is not used.
        """
        return self._place(experiment, trial, uid).aside()

    def discard(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str) -> None:
        """Delete a checkpoint of a trial, whether or not it is committed.

        `uid` is the trial's unique id; `body` is not used.
        """
        self._place(experiment, trial, uid).discard(checkpoint)

    def sweep(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, attempt: int) -> None:
        """Delete the unfinished (uncommitted) checkpoints of a trial that attempts before `attempt` have left."""
        self._place(experiment, trial, uid).sweep(attempt)

    def clear(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> None:
        """Delete the checkpoint folder of an ended trial; do nothing if the trial has checkpoints.

        The folder may contain fences: files that record which attempt was allowed to write there.
        """
        self._place(experiment, trial, uid).clear()

    def pin(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, checkpoint: str, pinned: bool) -> None:
        """Pin a checkpoint, so that no retention rule deletes it; with `pinned` False, unpin it.

        `uid` is the trial's unique id; `body` is not used.
        """
        self._place(experiment, trial, uid).pin(checkpoint, pinned)

    def follow(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, by: int, follows: bool) -> None:
        """Retain all checkpoints of a trial until the evaluation `by` has judged each; with `follows` False, end that.

        `uid` is the trial's unique id; `body` is not used.
        """
        self._place(experiment, trial, uid).follow(by, follows)

    def judge(
        self,
        body: Iterator[bytes],
        experiment: int,
        trial: int,
        uid: str,
        checkpoint: str,
        by: int,
        metrics: dict[str, float],
    ) -> None:
        """Record beside a checkpoint what the evaluation `by` has measured.

        `uid` is the trial's unique id; `body` is not used.
        """
        self._place(experiment, trial, uid).judge(checkpoint, by, metrics)

    def claim(self, body: Iterator[bytes], experiment: int, trial: int, uid: str, attempt: int) -> None:
        """Record that attempt number `attempt` continues its trial; checkpoints of older attempts are then refused.

        `uid` is the trial's unique id; `body` is not used.
        """
        self._place(experiment, trial, uid).fence(attempt)

    def names(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> Any:
        """Return the names of all files and folders in a trial's checkpoint folder.

        `uid` is the trial's unique id; `body` is not used.
        """
        return self._place(experiment, trial, uid).names()

    def claimed(self, body: Iterator[bytes], experiment: int, trial: int, uid: str) -> int:
        """Return the number of the last attempt for which `claim` was called in a trial; 0 if it never was.

        `uid` is the trial's unique id; `body` is not used.
        """
        return self._place(experiment, trial, uid).claimed()

    # Helpers

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _here(self, text: str) -> LaunchSpec:
        """Return a launch spec, given as JSON, with the folders of this user's workspace, which the service lacks.

        They are the home folder, the folder of the code, and that of checkpoints unless these are in an object store.
        """
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
    return ListedCheckpoint(
        manifest=dump(manifest).decode(),
        pinned=manifest.pinned,
        files=files_of(manifest),
        judged=manifest.judged,
        awaited=manifest.awaited,
    )


OPERATIONS = frozenset(name for name in vars(AgentOperations) if not name.startswith("_"))

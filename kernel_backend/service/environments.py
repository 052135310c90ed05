"""Lock Python environments after a submission, and build them before an attempt starts, both in the background."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

from kernel_backend.environments import uv
from kernel_backend.errors import DaylightError, Forbidden, NoEnvironment, PlaceUnavailable
from kernel_backend.model.cluster.pools import PoolSettings
from kernel_backend.model.environments import EnvironmentInfo, packages
from kernel_backend.model.experiment import Experiment, ScheduledExperiment
from kernel_backend.model.resources import LOCAL
from kernel_backend.model.snapshot import Environment
from kernel_backend.model.values import listed
from kernel_backend.service.lookups import Lookups
from kernel_backend.snapshots.archive import Archive
from kernel_backend.workspaces.base import EnvironmentStorage, Workspaces

AGAIN_S = 60.0  # seconds before a failed build or lock is retried: the network may have been down
FRESH_S = 60.0  # seconds after a submission during which its environment counts as unchanged
NAMED = 5  # packages that a note lists by name
Settings = Callable[[str], PoolSettings | None]
_Whose = tuple[str, str]  # owner and id of an environment
_log = logging.getLogger(__name__)


class Preparation:
    """Background builder of Python environments; its daemon threads end with the service."""

    def __init__(self, archive: Archive, workspaces: Workspaces, settings: Settings, wake: Callable[[], None]) -> None:
        """Create the builder; `settings` returns a pool's settings, which say where environments are built.

        `wake` is called whenever a lock or an environment is finished, or has failed.
        """
        self._workspaces, self._settings = workspaces, settings
        self.recorded: Callable[[str], Environment] = lru_cache(256)(lambda id: archive.snapshot(id).environment)
        self._packages: Callable[[str], tuple[str, ...]] = lru_cache(256)(lambda id: archive.snapshot(id).packages)
        self._replaced: set[str] = set()  # snapshots that run with the service's interpreter, before their first note
        self._guard = threading.Lock()
        self._building: dict[_Whose, float] = {}  # start time (time.monotonic()) of each build under way
        self._failed: dict[_Whose, tuple[float, str]] = {}  # time and reason of the last failure
        self._locking: set[_Whose] = set()
        self._unlocked: dict[_Whose, float] = {}  # time of the last failure to lock after a submission
        self.lookups = Lookups(wake)

    def check(self, owner: str, snapshot: str) -> None:
        """Raise NoEnvironment if the locked environment of a snapshot does not exist and cannot be built."""
        environment = self.recorded(snapshot)
        if self._kept(owner).python(environment) is not None:
            return
        if environment.daylight is None:
            raise NoEnvironment(
                "--env locked: this snapshot does not say which Daylight it ran with: use --env current"
            )
        if uv.find() is None:
            raise NoEnvironment("--env locked: there is no uv, which builds environments: pip install uv")

    def interpreter(self, owner: str, snapshot: str, python: str, pool: str, locked: bool) -> str:
        """Return the Python interpreter with which to train a submission that was made with the interpreter `python`.

        A submission may come from a machine that has no files in common with the service. On the service's machine
        `python` is returned if it exists there, else the service's own interpreter; in a pool the one that the pool's
        settings name, else `python`, which nodes may have. Raises NoEnvironment if the service's own interpreter lacks
        packages that the submission imports, unless the environment is `locked`.
        """
        if self._settings(pool) is not None:
            return self._own_python(pool) or python
        found = self._kept(owner).interpreter(python, self._packages(snapshot))
        if found.lacks and not locked:
            raise NoEnvironment(
                f"the notebook's Python, {python}, is not on the machine where trainings run, and the one there, "
                f"{found.path}, lacks {listed(found.lacks, NAMED)}: have that installed there, or submit with "
                "--env locked"
            )
        if found.path != python:
            self._replaced.add(snapshot)
        return found.path

    def keep(self, owner: str, snapshot: str, python: str) -> None:
        """Begin to lock a snapshot's environment and to store its wheels, in a thread, unless that is done already.

        A failure, perhaps for lack of a network, is logged. It is tried again at the first submission that comes more
        than `AGAIN_S` seconds later. Where uv is to stay offline, only `--env locked` has an environment locked.
        """
        if uv.offline():
            return
        environment = self.recorded(snapshot)
        whose = owner, environment.id
        with self._guard:
            failed = self._unlocked.get(whose)
            waits = failed is not None and time.monotonic() - failed < AGAIN_S
            if waits or whose in self._locking or environment.daylight is None:
                return
            self._locking.add(whose)
        _in_thread(self._keep, owner, environment, Path(python))

    def info(self, owner: str, snapshot: str) -> EnvironmentInfo:
        """Return a snapshot's environment, with its lock file and its interpreter."""
        environment, kept = self.recorded(snapshot), self._kept(owner)
        lock, python = kept.lock(environment), kept.python(environment)
        return EnvironmentInfo(
            id=environment.id,
            recorded=environment,
            lock=lock and lock.text,
            locked=len(lock) if lock else 0,
            unlocked=lock.unlocked if lock else {},
            built=python and str(python),
        )

    def wait(self, experiment: ScheduledExperiment) -> str:
        """Return why an experiment with `--env locked` waits for its environment; "" if the environment is ready.

        Does not block: the environments are the owner's files, which are read in a thread.
        """
        if experiment.config.env != "locked":
            return ""
        try:
            environment = self.recorded(experiment.snapshot)
        except (DaylightError, OSError):
            return ""  # the same error is reported when the trial is started
        owner, whose = experiment.owner, (experiment.owner, environment.id)
        here = self._needed_here(experiment)
        find = partial(self._find, owner, environment, Path(experiment.python), here)
        found = self.lookups.answer(owner, (*whose, here), find)
        since = self._building.get(whose)
        if since is not None:
            done = "built" if here else "locked"
            return f"its locked environment is being {done} ({time.monotonic() - since:.0f} s)"
        return "its locked environment is being looked for" if found is None else found

    def python(self, experiment: Experiment) -> str:
        """Return the path of an experiment's Python interpreter.

        Raises NoEnvironment if its locked environment is gone.
        """
        if experiment.config.env != "locked":
            return experiment.python
        environment = self.recorded(experiment.snapshot)
        found = self._kept(experiment.owner).python(environment)
        if found is None:
            self.lookups.forget((experiment.owner, environment.id, True))
            raise NoEnvironment("its locked environment is gone, and is built again")
        return str(found)

    def launchers_python(self, experiment: Experiment, pool: str) -> str:
        """Return the path of the interpreter that runs an experiment's launchers on the nodes of a pool.

        If nodes build the locked environment themselves, they also build it with this interpreter. Raises NoEnvironment
        if a locked environment that was built on the service's machine is gone.
        """
        if experiment.config.env == "locked" and not self._built_on_nodes(experiment, pool):
            return self.python(experiment)
        return self._own_python(pool) or experiment.python

    def note(self, experiment: Experiment, attempts: int) -> str | None:
        """Return a note about packages that are missing or have other versions than in the snapshot; None for none.

        An unlocked environment is not compared right after a new submission (when `attempts`, the number of earlier
        attempts, is 0), as it cannot have changed yet. But if the service's interpreter replaces the submission's,
        packages of another version are named even then.
        """
        if experiment.config.env == "locked":
            return self._lacking(experiment)
        if experiment.snapshot in self._replaced:
            self._replaced.discard(experiment.snapshot)
            return self._changed(experiment, only_versions=True)
        fresh = attempts == 0 and experiment.rerun_of is None and time.time() - experiment.created_at < FRESH_S
        return None if fresh else self._changed(experiment)

    def _own_python(self, pool: str) -> str | None:
        """Return the interpreter that the settings of a Slurm pool name.

        None if they name none, or if the pool's engine is not Slurm.
        """
        settings = self._settings(pool)
        return settings.python if settings is not None and settings.engine == "slurm" else None

    def _built_on_nodes(self, experiment: ScheduledExperiment, pool: str) -> bool:
        settings = self._settings(pool)
        return experiment.config.env == "locked" and settings is not None and not settings.shared

    def _needed_here(self, experiment: ScheduledExperiment) -> bool:
        """Return whether the environment must exist on the service's machine, for ranks or a custom search class."""
        search, pools = experiment.config.search, experiment.config.pools or (LOCAL,)
        on_nodes = all(self._built_on_nodes(experiment, pool) for pool in pools)
        return not on_nodes or (search is not None and search.source is not None)

    def _lacking(self, experiment: Experiment) -> str | None:
        recorded, kept = self.recorded(experiment.snapshot), self._kept(experiment.owner)
        lock, version = kept.lock(recorded), kept.version(recorded)
        notes = []
        if lock is not None and lock.unlocked:
            lacking = listed([f"{name} ({why})" for name, why in lock.unlocked.items()], NAMED)
            notes.append(f"not in the locked environment: {lacking}")
        if version is not None and version != recorded.python:
            notes.append(f"the locked environment has Python {version}, the snapshot was made with {recorded.python}")
        return "; ".join(notes) or None

    def _changed(self, experiment: Experiment, only_versions: bool = False) -> str | None:
        recorded = self.recorded(experiment.snapshot)
        if recorded.daylight is None:
            return None
        try:
            found = packages(recorded, self._kept(experiment.owner).present(Path(experiment.python)))
        except (NoEnvironment, PlaceUnavailable) as error:
            return error.message
        if only_versions:
            found = [each for each in found if each.recorded is not None and each.present is not None]
        return f"not the packages of its snapshot: {listed([str(each) for each in found], NAMED)}" if found else None

    def _kept(self, owner: str) -> EnvironmentStorage:
        return self._workspaces.of(owner).environments

    def _keep(self, owner: str, environment: Environment, python: Path) -> None:
        try:
            self._kept(owner).make_lock(environment, python)
        except DaylightError as error:
            self._unlocked[owner, environment.id] = time.monotonic()
            _log.warning("environment %s is not locked yet: %s", environment.id[:12], error)
        finally:
            with self._guard:
                self._locking.discard((owner, environment.id))

    def _find(self, owner: str, environment: Environment, python: Path, here: bool) -> str:
        """Build an environment on this machine (if `here`) or only lock it, unless that is done or has failed recently.

        Return the reason of a failure, "" if there is none. An environment that is only locked is built later by the
        nodes.
        """
        try:
            kept = self._kept(owner)
            if (kept.python(environment) if here else kept.lock(environment)) is not None:
                return ""
        except (Forbidden, PlaceUnavailable) as error:
            return error.message
        when, why = self._failed.get((owner, environment.id), (0.0, ""))
        if not why or time.monotonic() - when >= AGAIN_S:
            why = self._build(owner, environment, python, here)
        return why and f"{why}; this is tried again"

    def _build(self, owner: str, environment: Environment, python: Path, here: bool) -> str:
        """Build an environment on this machine (if `here`), or only lock it; return why that failed, "" on success."""
        whose = owner, environment.id
        began = self._building[whose] = time.monotonic()
        try:
            if here:
                self._kept(owner).build(environment, python)
            else:
                self._kept(owner).make_lock(environment, python)
        except Exception as error:  # any error is reported with its experiment
            why = error.message if isinstance(error, DaylightError) else f"{type(error).__name__}: {error}"
            _log.warning("environment %s: %s", environment.id[:12], why)
            self._failed[whose] = time.monotonic(), why
            return why
        finally:
            self._building.pop(whose, None)
        done = "built" if here else "locked"
        _log.info("environment %s was %s in %.1f s", environment.id[:12], done, time.monotonic() - began)
        self._failed.pop(whose, None)
        return ""


def _in_thread(
    work: Callable[[str, Environment, Path], None], owner: str, environment: Environment, python: Path
) -> None:
    """Call `work(owner, environment, python)` in a daemon thread.

    The thread is not from a pool: a process waits for its pools at exit, and a download may take long.
    """
    threading.Thread(target=work, args=(owner, environment, python), daemon=True).start()

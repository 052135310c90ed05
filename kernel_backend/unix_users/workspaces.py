"""Access the workspaces of Unix users through their agents: code, artifacts, search classes and environments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter

from kernel_backend.environments.lock import Lock
from kernel_backend.errors import PlaceUnavailable, SearchFailed
from kernel_backend.launch.search_process import ANSWER_S, START_S
from kernel_backend.model.disk import WorkspaceUsage
from kernel_backend.model.environments import Interpreter
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.record import Value
from kernel_backend.model.snapshot import Environment
from kernel_backend.snapshots.shipped import Working
from kernel_backend.unix_users.agents import LONG_S, Agents, Body, Link
from kernel_backend.workspaces.base import LARGEST_NUMBER, Contents, SearchClass, SearchClassProcess, Workspace

A = TypeVar("A")
CLASS_S = START_S + ANSWER_S  # more than the agent's own limits, as it reports a class's position after a timeout
UNPACK_S = 60.0
PRESENT_S = 70.0  # more than the minute that the agent allows an interpreter


class UnixUserWorkspaces:
    """Access to the workspaces of all users, each through the user's agent."""

    closed = False  # agents run code as its owner, never as the service

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    def check(self, owner: str) -> None:
        """Raise PlaceUnavailable or Forbidden unless the agent of this owner answers."""
        self._agents.check(owner)

    def of(self, owner: str) -> Workspace:
        """Return the workspace of a user, which is accessed through the user's agent."""
        return AgentWorkspace(self._agents, owner)


class AgentWorkspace:
    """Workspace of one user, accessed through the user's agent."""

    def __init__(self, agents: Agents, user: str) -> None:
        self._agents, self._user = agents, user
        self.environments = AgentEnvironments(agents, user)

    def unpack(self, job: LaunchSpec, archive: bytes) -> Working:
        """Unpack an archive, the code of an attempt, and return the attempt's working folder."""
        return self._agents.ask(self._user, "unpack", _WORKING, Body.of(archive), UNPACK_S, job=job.model_dump_json())

    def largest_number(self) -> int:
        """Return the largest number of an experiment that has a folder in the workspace."""
        return self._agents.ask(self._user, "largest_number", _NUMBER)

    def last_attempt(self, experiment: int, trial: int, since: int) -> int:
        """Return the number of the last attempt of a trial that has a folder, counted on from `since` without a gap.

        If attempt `since + 1` has none, return `since`.
        """
        return self._agents.ask(self._user, "last_attempt", _NUMBER, experiment=experiment, trial=trial, since=since)

    def usage(self, experiment: int) -> dict[str, int]:
        """Return the bytes of disk that the folders of an experiment use, by kind of folder."""
        return self._agents.ask(self._user, "usage", _SIZES, limit=LONG_S, experiment=experiment)

    def disk(self) -> WorkspaceUsage:
        """Return the bytes of disk that all experiments and environments of the workspace use, and the free bytes."""
        return self._agents.ask(self._user, "disk", _DISK, limit=LONG_S)

    def remove(self, experiment: int) -> None:
        """Delete the folders of an experiment in the workspace."""
        self._agents.ask(self._user, "remove", _NONE, limit=LONG_S, experiment=experiment)

    def remove_logs(self, experiment: int) -> None:
        """Delete the logs, records and unpacked code of an experiment that has ended."""
        self._agents.ask(self._user, "remove_logs", _NONE, limit=LONG_S, experiment=experiment)

    def artifact(self, experiment: int, trial: int, name: str) -> Contents:
        """Return the size and a stream of the bytes of an artifact's file."""
        stack = ExitStack()
        asked = self._agents.open(self._user, "artifact", _NONE, experiment=experiment, trial=trial, name=name)
        _, link = stack.enter_context(asked)
        return Contents(link.size, _closing(stack, link))

    def asker(self, asked: SearchClass, archive: bytes) -> SearchClassProcess:
        """Return a client of the search class `asked`, whose snapshot has the bytes `archive`.

        The user's agent runs the class in a process of its own.
        """
        return AgentSearchProcess(self._agents, self._user, asked, archive)


class AgentSearchProcess:
    """Client of a user's search class, which the user's agent runs in a process.

    The process lives as long as the connection to the agent.
    """

    def __init__(self, agents: Agents, user: str, asked: SearchClass, archive: bytes) -> None:
        self._agents, self._user, self._class, self._archive = agents, user, asked, archive
        self._link: Link | None = None

    def interval(self) -> Any:
        """Return the search class's attribute `interval`, unvalidated: after how many units each trial is judged.

        A unit is an epoch or a step. None if the class has no such attribute: its trials then train to the end.
        """
        return self._call("interval")

    def ask(self, trial: int) -> Any:
        """Call the method `ask` of the search class, and return its result.

        It is the hyperparameters of the new trial `trial`, the number of a paused trial to resume, or None for nothing.
        """
        return self._call("ask", trial=trial)

    def tell(self, trial: int, params: dict[str, Value], unit: int, value: float) -> Any:
        """Call the method `tell` of the search class with a result of a trial, and return what it returns.

        `value` is the metric of the trial, which has the hyperparameters `params`, after `unit` epochs or steps.
        """
        return self._call("tell", trial=trial, params=params, unit=unit, value=value)

    def close(self) -> None:
        """End the process of the search class; a later call starts a new one."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _call(self, op: str, **arguments: Any) -> Any:
        """Call a method of the search class through the agent, which starts the process at the first call.

        Raises PlaceUnavailable if the process could not be started, so that the call may be repeated. Raises
        SearchFailed if the connection is lost later, since the state of the class is then lost with the process.
        """
        if self._link is None:
            body, asked = Body.of(self._archive), self._class.model_dump_json()
            _, self._link = self._agents.begin(self._user, "asker", _NONE, body, CLASS_S, asked=asked)
        try:
            self._link.put(op, arguments)
            return self._link.value(_ANY)
        except PlaceUnavailable as error:
            name = self._class.settings.source or "the search"
            raise SearchFailed(f"the process of {name} is lost: {error.message}") from None


class AgentEnvironments:
    """Access to the Python environments of one user, through the user's agent."""

    def __init__(self, agents: Agents, user: str) -> None:
        self._agents, self._user = agents, user

    def interpreter(self, python: str, packages: Sequence[str]) -> Interpreter:
        """Return the interpreter `python` (the agent's own, if that is missing here), and which packages it lacks."""
        return self._agents.ask(self._user, "interpreter", _INTERPRETER, python=python, packages=list(packages))

    def lock(self, environment: Environment) -> Lock | None:
        """Return the lock of an environment (exact versions of all its packages); None if none is stored."""
        return self._agents.ask(self._user, "lock", _LOCK_OR_NONE, environment=environment.model_dump_json())

    def make_lock(self, environment: Environment, python: Path) -> Lock:
        """Return the lock of an environment; if none is stored, make it with the interpreter `python`, and store it."""
        return self._beside("make_lock", _LOCK, environment, python)

    def python(self, environment: Environment) -> Path | None:
        """Return the path of an environment's interpreter; None if the environment is not built."""
        return self._agents.ask(self._user, "python", _PATH_OR_NONE, environment=environment.model_dump_json())

    def version(self, environment: Environment) -> str | None:
        """Return the Python version of an environment; None if the environment is not built."""
        return self._agents.ask(self._user, "version", _TEXT_OR_NONE, environment=environment.model_dump_json())

    def build(self, environment: Environment, python: Path) -> Path:
        """Build an environment with the interpreter `python`, unless it is built, and return its interpreter."""
        return self._beside("build", _PATH, environment, python)

    def present(self, python: Path) -> Environment:
        """Return a description of the environment that an interpreter has now."""
        return self._agents.ask(self._user, "present", _ENVIRONMENT, limit=PRESENT_S, python=str(python))

    def _beside(self, op: str, kind: TypeAdapter[A], environment: Environment, python: Path) -> A:
        """Have the agent perform an operation that may take minutes, and return its result, validated as `kind`.

        It does not count as one of the user's concurrent requests, whose number is limited.
        """
        asked, at = environment.model_dump_json(), str(python)
        found, link = self._agents.begin(self._user, op, kind, limit=LONG_S, environment=asked, python=at)
        link.close()
        return found


def _closing(stack: ExitStack, link: Link) -> Iterator[bytes]:
    with stack:
        yield from link.pieces()


_NONE: TypeAdapter[None] = TypeAdapter(None)
# Its value is used for the numbers of all users' experiments.
_NUMBER: TypeAdapter[int] = TypeAdapter(Annotated[int, Field(ge=0, le=LARGEST_NUMBER)])
_SIZES: TypeAdapter[dict[str, int]] = TypeAdapter(dict[str, Annotated[int, Field(ge=0)]])
_DISK = TypeAdapter(WorkspaceUsage)
_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_WORKING = TypeAdapter(Working)
_LOCK = TypeAdapter(Lock)
_LOCK_OR_NONE: TypeAdapter[Lock | None] = TypeAdapter(Lock | None)
_PATH = TypeAdapter(Path)
_PATH_OR_NONE: TypeAdapter[Path | None] = TypeAdapter(Path | None)
_TEXT_OR_NONE: TypeAdapter[str | None] = TypeAdapter(str | None)
_ENVIRONMENT = TypeAdapter(Environment)
_INTERPRETER = TypeAdapter(Interpreter)

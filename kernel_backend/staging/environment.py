"""Build the locked environment of an attempt on the node's own disk, shared by attempts with the same lock."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_backend.environments.storage import Environments
from kernel_backend.environments.wheelhouse import NodeEnvironment, Wheel, sha256_of
from kernel_backend.errors import NoEnvironment
from kernel_backend.model.launch.staging import StagingRequest
from kernel_backend.model.versions import read
from kernel_backend.staging.node_home import NodeHome
from kernel_backend.staging.retry import DAMAGED, StagingFailed, retried

if TYPE_CHECKING:
    from kernel_backend.client import Client

LOOK_S = 2.0  # between polls whether the service has downloaded all wheels
_log = logging.getLogger(__name__)


class LockedEnvironment:
    """Locked environment of one attempt, on the disk of this node."""

    def __init__(self, request: StagingRequest, client: Client, home: NodeHome) -> None:
        self._request, self._client, self._home = request, client, home
        self._environments = Environments(home.path)
        self._offered = self._ask(everything=False)

    @property
    def folder(self) -> Path:
        """Return the path of the environment's folder."""
        return self._environments.folder(self._offered.environment)

    def python(self, base: Path) -> Path:
        """Return the environment's interpreter; build it with the interpreter `base` if needed.

        If another launcher is building it, wait. Raises NoEnvironment and StagingFailed.
        """
        environment = self._offered.environment
        with self._home.alone(f"environment-{environment.id[:16]}"):
            if found := self._environments.python(environment):
                return found
            begun = time.monotonic()
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=".wheels-") as folder:
                built = self._build(base, Path(folder))
            _log.info("built environment %s in %.1f s", environment.id[:12], time.monotonic() - begun)
            return built

    @property
    def note(self) -> str:
        """Return a note for the user if the environment has another Python version than the recorded one, else ""."""
        found, recorded = self._environments.version(self._offered.environment), self._offered.environment.python
        if found is None or found == recorded:
            return ""
        return f"the locked environment has Python {found}, the snapshot was made with {recorded}"

    def _build(self, base: Path, folder: Path) -> Path:
        """Build the environment with packages from the indexes that this node uses, or if that fails, from the service.

        `base` is the interpreter to build it with, and `folder` a temporary folder for wheels.
        """
        offered = self._offered
        own = self._fetched(offered.wheels, folder)
        try:
            return self._environments.install(offered.environment, offered.lock, own, base)
        except NoEnvironment as error:
            _log.warning("%s; the service is asked for its packages", error.message)
            everything = self._downloaded(error)
        index = folder / "index"
        index.mkdir()
        self._fetched(everything, index)
        return self._environments.install(offered.environment, offered.lock, own, base, index)

    def _downloaded(self, reason: NoEnvironment) -> tuple[Wheel, ...]:
        """Wait until the service has downloaded the packages of the lock from indexes; return their wheels.

        Raises NoEnvironment if it cannot; `reason` is why this node could not do so itself.
        """
        while not (found := self._ask(everything=True)).ready:
            time.sleep(LOOK_S)
        if found.problem:
            raise NoEnvironment(f"{reason.message}; nor can the service give its packages: {found.problem}")
        return tuple(each for each in found.wheels if not each.name)

    def _ask(self, *, everything: bool) -> NodeEnvironment:
        answer = retried(
            lambda: self._client.attempt_environment(self._request.key, self._request.token, everything=everything)
        )
        return read(NodeEnvironment, answer)

    def _fetched(self, wheels: Iterable[Wheel], folder: Path) -> Mapping[str, Path]:
        """Fetch wheels from the service into a folder; return their paths by name of package."""
        return {each.name: self._fetch(each, folder / each.file) for each in wheels}

    def _fetch(self, wheel: Wheel, path: Path) -> Path:
        for _ in range(DAMAGED):
            with path.open("wb") as file:
                while (offset := file.tell()) < wheel.size and (piece := self._piece(wheel, offset)):
                    file.write(piece)
            if sha256_of(path) == wheel.sha256:
                return path
        raise StagingFailed(f"{wheel.file} arrived damaged {DAMAGED} times: look at this node's network")

    def _piece(self, wheel: Wheel, offset: int) -> bytes:
        return retried(lambda: self._client.attempt_wheel(self._request.key, self._request.token, wheel.key, offset))

"""Read and write the folders of attempts for an engine: records, logs, and the file that marks gangs to report on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from pydantic import ValidationError

from kernel_backend.engines.log import Piece, read_end, read_on, read_tail
from kernel_backend.errors import DaylightError, InvalidRequest, NotFound
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.spool import read_page
from kernel_backend.model.ids import AttemptId, parse_attempt
from kernel_backend.model.reports import AttemptResult, SpoolPage, SpoolPosition
from kernel_backend.model.resources import LOCAL
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure
from kernel_backend.model.views.overview import LogChunk

MARK = "DAYLIGHT_ATTEMPT"  # environment variable of an attempt's processes; its value is the attempt's folder
OUTCOMES = {"ok": Outcome.OK, "released": Outcome.RELEASED, "failed": Outcome.FAILED, "lost": Outcome.LOST}
_WITHHELD = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")


class GangFolders:
    """Folders of the attempts of a pool's gangs, in the service's home folder.

    A gang is "listed" (its engine reports its status) as long as its folder has a file `listed` with the pool's name.
    """

    def __init__(self, home: Path, pool: str = LOCAL) -> None:
        self._home = home
        self._pool = "" if pool == LOCAL else pool  # content of the file `listed`

    def of(self, key: AttemptId) -> AttemptFolder:
        """Return the folder of an attempt; it may not exist."""
        return AttemptFolder(attempt_folder(self._home, key))

    def mark(self, key: AttemptId) -> None:
        """Begin to list the gang of this attempt, that is to report its status, until `forget` is called."""
        (self.of(key).path / "listed").write_text(self._pool)

    def listed_at(self, key: AttemptId) -> float:
        """Return when the gang of an attempt was submitted, in seconds since the epoch.

        Raises FileNotFoundError if the gang is not listed.
        """
        return (self.of(key).path / "listed").stat().st_mtime

    def listed(self, of: Sequence[AttemptId] | None = None) -> Iterator[AttemptId]:
        """Yield the attempts whose gangs are listed (not forgotten yet); if `of` is given, only attempts in it."""
        if of is not None:
            yield from (key for key in of if self._is_mine(self.of(key).path / "listed"))
            return
        for mark in sorted(self._home.glob("attempts/*/listed")):
            with contextlib.suppress(InvalidRequest):
                key = parse_attempt(mark.parent.name)
                if self._is_mine(mark):
                    yield key

    def forget(self, key: AttemptId) -> None:
        """Stop listing the gang of an attempt, so that its status is reported no more, and delete its secret token."""
        folder = self.of(key).path
        for name in ("listed", "token"):
            (folder / name).unlink(missing_ok=True)

    def rename(self, key: AttemptId) -> None:
        """Rename the folder of an attempt whose processes have ended, so that another attempt can have its key."""
        folder = self.of(key).path
        others = (folder.with_name(f"{folder.name}.other-{number}") for number in count(1))
        with contextlib.suppress(FileNotFoundError):
            folder.rename(next(other for other in others if not other.exists()))

    def logs(self, key: AttemptId, rank: int, offset: int = 0, tail: int | None = None) -> LogChunk:
        """Return a part of a rank's log from a byte offset on, or its last `tail` bytes.

        The part is empty if the attempt has no such log yet. Raises NotFound if the attempt has no folder.
        """
        folder = self.of(key)
        ended = not (folder.path / "listed").exists()  # checked first: the read may miss lines that are written later
        try:
            log = folder.rank_log(rank)
            piece = read_on(log, offset, ended) if tail is None else read_tail(log, tail, ended)
        except FileNotFoundError:
            if not folder.path.exists():
                raise NotFound(f"attempt {key} has left no logs") from None
            piece = Piece("", 0, 0)
        return LogChunk(attempt=key.number, rank=rank, ended=ended, **piece._asdict())

    def _is_mine(self, mark: Path) -> bool:
        try:
            # Marks of the local pool are not opened: if no file can be opened, a gang must not count as forgotten.
            return mark.stat().st_size == len(self._pool) and (not self._pool or mark.read_text() == self._pool)
        except (FileNotFoundError, NotADirectoryError):
            return False


class FolderEngine(ABC):
    """Base class of engines whose launchers write to folders in the service's home: records and logs are read there."""

    def __init__(self, folders: GangFolders) -> None:
        self._folders = folders

    @abstractmethod
    async def kill(self, key: AttemptId) -> None:
        """Kill a gang; return when none of its processes is left."""

    async def records(self, key: AttemptId, after: int, begin: SpoolPosition) -> SpoolPage:
        """Return a page of records from an attempt's spool file: from offset `begin` on, with numbers above `after`.

        The spool is the file to which rank 0 appends its records.
        """
        return await asyncio.to_thread(read_left, self._folders.of(key), begin, after)

    async def logs(self, key: AttemptId, rank: int, offset: int = 0, tail: int | None = None) -> LogChunk:
        """Return up to 256 KiB of a rank's log from a byte offset on, or its last `tail` bytes.

        Raises NotFound if there is no log.
        """
        return await asyncio.to_thread(self._folders.logs, key, rank, offset, tail)

    async def set_aside(self, key: AttemptId) -> None:
        """Kill the gang of an attempt and rename its folder, so that another attempt can have the same key."""
        await self.kill(key)
        await asyncio.to_thread(self._folders.rename, key)


def read_left(folder: AttemptFolder, begin: SpoolPosition, after: int) -> SpoolPage:
    """Return a page of the records that rank 0 of an attempt has left in its spool file.

    Reading begins at the offset `begin`; records with numbers up to `after` are left out. The first page also has the
    final measurements of the launchers: step times of ranks, and use of slots.
    """
    page = read_page(folder.spool, begin, after)
    return page if begin.offset else page.model_copy(update={"measured": folder.measured()})


def withheld(env: str) -> tuple[str, ...]:
    """Return the environment variables that launchers must not inherit if the experiment's environment is `env`.

    For a locked environment (`locked`) these are PYTHONPATH and PYTHONHOME, as it must not see other packages, and
    PYTHONDONTWRITEBYTECODE: uv does not compile packages, so that each rank would compile all that it imports.
    """
    return _WITHHELD if env == "locked" else ()


def never_launched(folder: AttemptFolder, others: tuple[str, ...] = ()) -> AttemptResult:
    """Return the result "failed" for an attempt whose launcher exited before it had started the ranks.

    The message has the last line of the launcher's log, and advice if that line shows a known cause. Lines that begin
    with one of `others` are skipped, as another program (such as srun) printed them.
    """
    text = read_end(folder.launcher_log)
    lines = [line for line in text.strip().splitlines() if not line.startswith(others)]
    said = lines[-1] if lines else "it said nothing"
    way_out = ": install daylight into that environment" if "No module named" in said else ""
    try:
        python = folder.job().python
    except (OSError, ValidationError, DaylightError):
        python = "its interpreter"
    message = f"{python} could not launch the ranks ({said}){way_out}"
    failure = Failure(rank=0, type="LauncherFailed", message=message)
    return AttemptResult(outcome="failed", exit_codes=(), failure=failure, ended_at=time.time())

"""Read and write what engines leave in the folders of attempts: the mark of a listed gang, its records and logs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from pydantic import ValidationError

from kernel_backend.engines.log import Piece, read_on, read_tail
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
    """Folders of a pool's gangs in a home; a file `listed` with the pool's name marks a gang that is not forgotten."""

    def __init__(self, home: Path, pool: str = LOCAL) -> None:
        self._home = home
        self._pool = "" if pool == LOCAL else pool  # the content of the marks

    def of(self, key: AttemptId) -> AttemptFolder:
        """Return the folder of an attempt, which may not exist."""
        return AttemptFolder(attempt_folder(self._home, key))

    def mark(self, key: AttemptId) -> None:
        """Mark a gang as one that is listed until it is forgotten."""
        (self.of(key).path / "listed").write_text(self._pool)

    def unmark(self, key: AttemptId) -> None:
        """Remove the mark of a gang that was not submitted after all."""
        (self.of(key).path / "listed").unlink(missing_ok=True)

    def listed_at(self, key: AttemptId) -> float:
        """Return the time at which a gang was marked: that of its submission."""
        return (self.of(key).path / "listed").stat().st_mtime

    def listed(self, of: Sequence[AttemptId] | None = None) -> Iterator[AttemptId]:
        """Yield the keys of this pool's listed gangs; with `of`, only of those."""
        if of is not None:
            yield from (key for key in of if self._is_mine(self.of(key).path / "listed"))
            return
        for mark in sorted(self._home.glob("attempts/*/listed")):
            with contextlib.suppress(InvalidRequest):
                key = parse_attempt(mark.parent.name)
                if self._is_mine(mark):
                    yield key

    def forget(self, key: AttemptId) -> None:
        """Stop listing a gang, and delete its token."""
        folder = self.of(key).path
        for name in ("listed", "token"):
            (folder / name).unlink(missing_ok=True)

    def rename(self, key: AttemptId) -> None:
        """Rename the folder of a gang without processes, so that its key is free again."""
        folder = self.of(key).path
        others = (folder.with_name(f"{folder.name}.other-{number}") for number in count(1))
        with contextlib.suppress(FileNotFoundError):
            folder.rename(next(other for other in others if not other.exists()))

    async def records(self, key: AttemptId, after: int, begin: SpoolPosition) -> SpoolPage:
        """Return a page of a gang's spool, read from its folder."""
        return await asyncio.to_thread(read_page, self.of(key).spool, begin, after)

    async def logs(self, key: AttemptId, rank: int, offset: int = 0, tail: int | None = None) -> LogChunk:
        """Return up to 256 KiB of a rank's log from an offset, or its last `tail` bytes; raises NotFound."""
        return await asyncio.to_thread(self._logs, key, rank, offset, tail)

    def _logs(self, key: AttemptId, rank: int, offset: int, tail: int | None) -> LogChunk:
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
            # Of the local pool no file is opened: where none can be, a gang must not count as forgotten.
            return mark.stat().st_size == len(self._pool) and (not self._pool or mark.read_text() == self._pool)
        except (FileNotFoundError, NotADirectoryError):
            return False


def withheld(env: str) -> tuple[str, ...]:
    """Return the environment variables that launchers of gangs with this environment (`locked`) must not inherit.

    A locked environment must not see other packages (no PYTHONPATH, no PYTHONHOME), and may write bytecode: uv does
    not compile packages, and without bytecode each rank would compile all that it imports.
    """
    return _WITHHELD if env == "locked" else ()


def never_launched(folder: AttemptFolder, others: tuple[str, ...] = ()) -> AttemptResult:
    """Return the result of an attempt whose launcher could not begin, with the last line of its output.

    Lines that begin with one of `others` are another program's.
    """
    text = folder.launcher_log.read_text(errors="replace") if folder.launcher_log.exists() else ""
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

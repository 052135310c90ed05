"""Run gangs of the launcher in one home, so that one forkserver imports torch for the whole test session."""

from __future__ import annotations

import array
import atexit
import fcntl
import shutil
import tempfile
import termios
from pathlib import Path

from kernel_backend.launch.gang import Gang
from tests.support.world import World

HOME = Path(tempfile.mkdtemp(prefix="daylight-"))
_world = World(HOME, shared_forkserver=True)


@atexit.register
def _end() -> None:
    _world.close()
    shutil.rmtree(HOME, ignore_errors=True)


class WarmGang(Gang):
    """Ranks of an attempt, with methods that disturb them."""

    def hang_up(self) -> None:
        """Close every rank's stdin, like the death of a launcher does."""
        for line in self._lines:
            line.close()

    def unread(self) -> int:
        """Return the number of bytes sent to the ranks that they have not read."""
        count, found = array.array("i", [0]), 0
        for line in self._lines:
            fcntl.ioctl(line, termios.FIONREAD, count)
            found += count[0]
        return found

    def close(self) -> None:
        """End the gang, killing ranks that still run."""
        self.end()
        super().close()

"""Let the ranks of a node end their programs together, by marker files in a folder that the ranks share."""

from __future__ import annotations

from pathlib import Path

from kernel_backend.artifacts.program import LEAVING

_KILLING = "killing"


class Board:
    """Folder of marker files by which ranks request that all programs end, and report that their own has ended."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self._rank, self._size = folder, rank, size

    @property
    def leaving(self) -> bool:
        """Return True once a rank has requested that all programs end early."""
        return (self.folder / LEAVING).exists()

    def leave(self) -> None:
        """Request that all programs end early."""
        (self.folder / LEAVING).touch()

    @property
    def killing(self) -> bool:
        """Return True once a rank has ordered that all programs be killed, because none needs more time to save."""
        return (self.folder / _KILLING).exists()

    def kill(self) -> None:
        """Order all ranks to kill their programs. Called when no program needs more time to save and end by itself."""
        (self.folder / _KILLING).touch()

    def ended(self) -> None:
        """Record that this rank's program has ended."""
        (self.folder / f"ended-{self._rank}").touch()

    @property
    def all_ended(self) -> bool:
        """Return True once the programs of all ranks have ended."""
        return all((self.folder / f"ended-{rank}").exists() for rank in range(self._size))

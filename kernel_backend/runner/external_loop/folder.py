"""Save the files of a folder in checkpoints, for code that writes its state to files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch


class FolderPart:
    """Checkpoint part that holds all files of a folder, as they are on rank 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the contents of all files by their paths relative to the folder."""
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): _tensor(path.read_bytes()) for path in files}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace all files in the folder by those in `state`, the contents by path that a checkpoint holds."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        for name, data in state.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.numpy().tobytes())


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)

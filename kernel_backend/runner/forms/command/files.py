"""Manage the folder in which a program saves its checkpoints.

The folder persists between attempts of a trial, and its files are copied into Daylight's own checkpoints.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.checkpoints.base import Manifest
from kernel_backend.checkpoints.writer import flatten, tensors_of, unflatten
from kernel_backend.durable import replacing
from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.checkpoint.contents import NOBODYS, PerRankState, Read
from kernel_backend.runner.checkpoint.saving import Copying, HostCopy, Parts

PART = "files"  # name of the checkpoint part
MARKER = "COMMIT"  # file that the program creates in the folder to commit it
_STATE = "state.json"
Fingerprint = Mapping[str, tuple[int, int, int]]  # inode, size and time of each file


class CheckpointFiles:
    """Folder, below `root`, in which a trial's program saves its checkpoints; Daylight's checkpoints are copies of it.

    A program may commit checkpoints itself: it sends a request, or creates the file COMMIT. Then a restart restores the
    folder to the newest commit. Otherwise the program finds the folder as it was when the program ended. If the program
    then fails before it changes a file, the next restart restores the newest copy, since the program may have been
    killed while it wrote a file.
    """

    def __init__(self, root: Path, uid: str) -> None:
        self.folder = root / "checkpoints"
        self._root, self._staged, self._failed, self._uid = root, root / "staged", root / "failed", uid
        self._begun = ""  # digest of the folder that the attempt begins with
        self._copied: Fingerprint = {}
        self._tensors: dict[str, Tensor] = {}
        self.state: dict[str, Any] = {}  # the program's position when the folder was written
        self.left: dict[str, Any] = {}  # the program's position when the last attempt ended
        self.commits = False  # the program commits the folder itself
        self.refused = False  # the program failed with the folder as the last attempt left it

    def begin(self, resume_from: str | None) -> None:
        """Prepare the folder: reuse that of an earlier attempt of this trial, or else begin with an empty one.

        The folder is also emptied if the trial begins anew (`resume_from` is None) although a checkpoint was committed.
        If a checkpoint must be restored instead of the files, `load` replaces them later.
        """
        known = self._known()
        if known.get("uid") != self._uid or (resume_from is None and known.get("committed")):
            shutil.rmtree(self.folder, ignore_errors=True)
            known = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.state = self.left = known.get("state", {})
        self.commits = known.get("commits", False)
        # Not copied before the program changes it: a file may be torn.
        self._copied = self.fingerprint()
        self._begun = _digest(self._copied)
        self.refused = self._failed.exists() and known.get("begun") == self._begun
        self._failed.unlink(missing_ok=True)

    def failed(self) -> None:
        """Record that the program failed by an error of its own.

        The next attempt may then have to restore the folder from a copy, in case the folder's files are the cause.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        self._failed.touch()

    def wrote(self, state: dict[str, Any], committed: str | None) -> None:
        """Record the program's position and the newest checkpoint in a file next to the program's checkpoint folder.

        `state` is the position, with counts of steps and epochs. `committed` is the ID of the newest checkpoint that
        Daylight has committed for the trial; None if there is none.
        """
        self.state = state
        record = {
            "uid": self._uid,
            "state": state,
            "commits": self.commits,
            "committed": committed,
            "begun": self._begun,
        }
        with replacing(self._root / _STATE, durable=False) as file:
            file.write(json.dumps(record).encode())

    def fingerprint(self) -> Fingerprint:
        """Return inode, size and modification time of each file in the folder, by path, to detect changes."""
        found = {}
        for path in self._files(self.folder):
            with contextlib.suppress(FileNotFoundError):
                about = path.stat()
                found[path.relative_to(self.folder).as_posix()] = (about.st_ino, about.st_size, about.st_mtime_ns)
        return found

    def quiet(self, seconds: float) -> bool:
        """Return True if no file in the folder has changed in the last `seconds`."""
        return time.time() - _newest(self.fingerprint()) >= seconds

    @property
    def saved_at(self) -> float:
        """Return the Unix time at which the program last saved: when its newest file was modified.

        If the program commits checkpoints itself, only files that were committed count.
        """
        return _newest(self._copied if self.commits else self.fingerprint())

    @property
    def changed(self) -> bool:
        """Return True if the folder has changed since it was last copied or restored."""
        return self.fingerprint() != self._copied

    def stage(self) -> bool:
        """Copy the folder's files for a checkpoint; return False, without a copy, if a file changed meanwhile."""
        before = self.fingerprint()
        shutil.rmtree(self._staged, ignore_errors=True)
        tensors = {}
        try:
            for name in before:
                copy = self._staged / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.folder / name, copy)
                tensors[name] = _mapped(copy)
        except FileNotFoundError:
            return False
        if self.fingerprint() != before:
            return False
        self._copied, self._tensors = before, tensors
        return True

    def marked(self) -> bool:
        """Return True if the program has created the file COMMIT in the folder to commit it; delete that file."""
        marker = self.folder / MARKER
        if not marker.exists():
            return False
        marker.unlink(missing_ok=True)
        return True

    # Called by a Checkpointer

    def gather(self) -> PerRankState:
        """Return an empty state, as no rank has a state of its own: rank 0 alone saves the files."""
        return NOBODYS

    def modules_by_name(self) -> Mapping[str, nn.Module]:
        """Return no module, as the program's are in a process of its own."""
        return {}

    def check(self) -> None:
        """Do nothing: a checkpoint of files is never incompatible with the program."""

    def split(self, _: PerRankState) -> tuple[dict[str, Any], Parts]:
        """Return the copied files as a checkpoint part: their paths as its state, their bytes as its tensors."""
        state, tensors = flatten(self._tensors)
        return {PART: state}, {PART: tensors} if tensors else {}

    def load(self, manifest: Manifest, read: Read, others: bool = False) -> None:
        """Replace the folder's files by those of a checkpoint, unless the folder has newer ones of this trial.

        Newer files are those that an earlier attempt has left after this checkpoint. They are replaced, too, if the
        program commits checkpoints itself, or failed when it started with them. `read` returns the bytes of the
        checkpoint's parts; `others` is ignored.
        """
        known = self._known()
        is_left = known.get("uid") == self._uid and known.get("committed") == manifest.id
        if is_left and not self.commits and not self.refused:
            return
        if PART not in manifest.state:
            raise InvalidDefinition(f"checkpoint {manifest.id} is none of a command: it has no files")
        files = unflatten(manifest.state[PART], tensors_of(manifest, PART, read))
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name, data in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(memoryview(data.numpy()))
        saved = manifest.state["training"]
        self.state, self.commits = saved["form"], saved.get("commits", False)
        self._copied = self.fingerprint()
        self._begun = _digest(self._copied)

    def load_weights(self, manifest: Manifest, read: Read) -> list[str]:
        """Raise InvalidDefinition, as a program reads its initial weights itself."""
        raise InvalidDefinition("a command cannot begin with the weights of another trial: give it a file by an option")

    def _known(self) -> dict[str, Any]:
        try:
            found = json.loads((self._root / _STATE).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _files(self, folder: Path) -> list[Path]:
        found = []
        for where, _, names in os.walk(folder):
            found += [Path(where, name) for name in names if Path(where, name) != folder / MARKER]
        return sorted(path for path in found if path.is_file())


def _newest(files: Fingerprint) -> float:
    return max((time_ns for _, _, time_ns in files.values()), default=0) / 1e9


class NoCopy(HostCopy):
    """Substitute for the copier of tensors to host memory, for tensors that nothing modifies: it copies nothing."""

    def begin(self, parts: Parts, lazily: bool) -> Copying:
        """Return `parts` as the result of a finished copy, though no tensor is copied; `lazily` is ignored."""
        return Copying(parts, [], lambda: None)


def _digest(files: Fingerprint) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _mapped(path: Path) -> Tensor:
    """Return the bytes of a file as a tensor that is mapped into memory."""
    size = path.stat().st_size
    if size == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)

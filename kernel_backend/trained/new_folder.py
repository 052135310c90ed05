"""Write a folder for the user that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_backend.errors import InvalidRequest


@contextmanager
def new_folder(to: Path, mark: str, force: bool = False) -> Iterator[Path]:
    """Provide an empty folder beside `to`, which is renamed to `to` once the `with` block has filled it.

    After an error nothing is left. An existing `to` is replaced only with `force`, and only if it has the file `mark`,
    which is in every folder that was written so. Raises InvalidRequest if it exists otherwise, or if the disk refuses.
    """
    to = to.expanduser().absolute()
    if os.path.lexists(to):
        if not force:
            raise InvalidRequest(f"{to} is there already: name another folder, or replace it with --force")
        if not (to / mark).is_file() or to.is_symlink():
            raise InvalidRequest(f"{to} was not written by Daylight, as it has no {mark}, and is not replaced")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=to.parent, prefix=f".{to.name}-", suffix=".part"))
        try:
            beside.chmod(0o755)  # a temporary folder is readable by its owner only
            yield beside
            _flush(beside)
            _put(beside, to)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise InvalidRequest(f"cannot write to {to}: {error.strerror or error}") from error


def _flush(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def _put(folder: Path, to: Path) -> None:
    """Rename `folder` to `to`; an earlier folder there is deleted only after it has been replaced."""
    if not to.exists():
        folder.rename(to)
        return
    before = Path(tempfile.mkdtemp(dir=to.parent, prefix=f".{to.name}-", suffix=".old"))
    to.rename(before / to.name)
    folder.rename(to)
    shutil.rmtree(before)

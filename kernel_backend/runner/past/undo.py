"""Put a program's files back as they were when it began, as a restart begins anew and does all its work again."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from kernel_backend.runner.past.record import Past, parents


def looks_for(past: Past) -> str:
    """Return a file that the training has made, for which its setup looks, and which it does not remove; "" for none.

    Such a program goes on by itself from what it has saved.
    """
    stays = (each for each in past.later if not any(path in past.removed for path in (each, *parents(each))))
    return next((each for each in stays if each in past.missed or os.path.dirname(each) in past.looked), "")


def put_back(past: Past) -> list[str]:
    """Undo what the program is known to have changed, and return the paths of what could not be put back.

    What others have created stays, and so does what is not recorded, as that of a program which the program started.
    """
    made = {*past.made, *past.later, *past.created}
    known = {_number(each) for root in past.roots for each in _files(past.kept(root))}
    for path in sorted(made, reverse=True):  # what is in a folder before the folder
        for each in (path, f"{path}-wal", f"{path}-shm", f"{path}-journal"):
            with contextlib.suppress(OSError):
                _remove(each, known)
    left = [each for each in sorted(made) if os.path.lexists(each)]
    for root in past.roots:
        kept = past.kept(root)
        for source in sorted(kept.rglob("*")):
            target = os.path.join(root, source.relative_to(kept))
            try:
                _restore(source, target)
            except OSError:
                left.append(target)
    for path, size in past.grown.items():
        with contextlib.suppress(OSError):
            if os.path.getsize(path) > size:
                os.truncate(path, size)
    return [*left, *past.lost]


def _files(folder: Path) -> Iterator[Path]:
    return (each for each in folder.rglob("*") if not each.is_dir())


def _number(path: Path) -> tuple[int, int]:
    known = path.lstat()
    return known.st_dev, known.st_ino


def _remove(path: str, known: Collection[tuple[int, int]]) -> None:
    """Remove a file; or a folder with the files `known` in it, which the program has moved there."""
    if os.path.islink(path) or not os.path.isdir(path):
        os.remove(path)
        return
    for each in _files(Path(path)):
        if _number(each) in known:
            each.unlink()
    for folder, _, _ in os.walk(path, topdown=False):
        os.rmdir(folder)


def _restore(kept: Path, path: str) -> None:
    if kept.is_dir() and not kept.is_symlink():
        os.makedirs(path, exist_ok=True)
        shutil.copystat(kept, path)
        return
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        os.link(kept, path, follow_symlinks=False)
    except OSError:  # on another disk
        shutil.copy2(kept, path, follow_symlinks=False)

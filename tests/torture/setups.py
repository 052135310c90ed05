"""Kill programs whose setup removes, moves, lists or names files, twice each, and compare with plain `python NAME.py`.

    python -m tests.torture.setups
    python -m tests.torture.setups rmtree next_number

Each has a setup as people write them above the same small training loop. What is left, files and printed text, must be
that of an undisturbed plain run, or the guarantee must have said before the kill that it is not. A restart is
rehearsed, too, which must change nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import psutil

from tests.support.programs import ROOT
from tests.support.script_runs import Result, run

EARLIEST = 8  # iterations after which it is killed first, of 35: it is in its second epoch
KILLS = (15, 23)  # and then, with checkpoints; there is an epoch's end between the first of these and its checkpoint
SETUPS = {path.stem: path for path in sorted((ROOT / "setups").glob("*.py"))}
# Files that lie in the folder before the program begins, by the program's name.
BEFORE: dict[str, dict[str, str]] = {
    "append_history": {"history.txt": "a line\n"},
    "copytree_backup": {"backup/older.txt": "older", "out/old.txt": "old"},
    "hard_link_best": {"best": "old"},
    "jsonl_append": {"metrics.jsonl": '{"old": 1}\n'},
    "moved_data": {"data.txt": "12"},
    "newest_file": {"ckpt--1.txt": "7"},
    "newest_folder": {"runs/first/log.txt": "old\n"},
    "next_number": {"exp1/train.log": "old\n"},
    "overwrite_config": {"config.json": '{"runs": 3}'},
    "path_unlink": {"old.ckpt": "old"},
    "remove_each": {"out/old.txt": "old"},
    "rename_folder": {"out/old.txt": "old"},
    "rmtree": {"out/old.txt": "old"},
    "rmtree_outside": {"../beside/other.txt": "other", "../beside/out/old.txt": "old"},
    "rotate_log": {"train.log": "of an earlier run\n"},
    "rotating_handler": {"r.log": "of an earlier run\n"},
    "summary_of_folder": {"x.bin": "12345"},
    "symlink_latest": {"older/log": "x"},
    "truncate_log": {"log.txt": "of an earlier run\n"},
    "walk_data": {"data/x.txt": "1", "data/y.txt": "2"},
}


def left_beside(folder: Path) -> list[tuple[str, bytes]]:
    """Return the files beside a working folder that its program may write."""
    beside = folder.parent / "beside"
    return sorted((str(each.relative_to(beside)), each.read_bytes()) for each in beside.rglob("*") if each.is_file())


def prepared(folder: Path, name: str) -> Path:
    """Copy a program, and the files that lie in its folder before it begins; return the path of the program."""
    folder.mkdir(parents=True)
    for before, text in BEFORE.get(name, {}).items():
        path = Path(os.path.normpath(folder / before))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Path(shutil.copy(SETUPS[name], folder / "train.py"))


def killed(path: Path, past: Path | None, limits: list[str] | None = None) -> Result:
    """Run a program, killed after the iterations `KILLS`, each time to go on from a checkpoint some steps before.

    With a record of its files in `past`, it is killed once more before: when it has no checkpoint, and begins anew.
    The last restart is rehearsed first, to the end of the program. What the guarantee is said not to hold for, before
    each kill, is added to `limits`.
    """
    checkpoint = None
    said: list[str] = [] if limits is None else limits
    if past is not None:
        said += run(path, save_at=[1000], past=past, dies_at=EARLIEST).limits
    for dies in KILLS:
        dead = run(path, save_at=[dies - 2], checkpoint=checkpoint, past=past, dies_at=dies)
        said += dead.limits
        assert dead.checkpoints, "\n".join([dead.error, *dead.notes])
        checkpoint = dead.checkpoints[dies - 2]
    if past is not None:
        rehearse(path, checkpoint, past)
    return run(path, save_at=[1000], checkpoint=checkpoint, past=past)


def rehearse(path: Path, checkpoint: bytes | None, past: Path) -> None:
    """Rehearse a restart to the end of the program; what it starts and where it connects is not refused here.

    Raises AssertionError if it fails, or if anything outside of it is not what it was: files and processes.
    """
    before = world(path)
    with tempfile.TemporaryDirectory() as scratch:
        rehearsed = run(path, checkpoint=checkpoint, past=past, scratch=Path(scratch))
    assert not rehearsed.error, rehearsed.error
    after = world(path)
    changed = sorted(each for each in before.keys() | after.keys() if before.get(each) != after.get(each))
    assert not changed, f"a rehearsal has changed {', '.join(changed)}"


def world(path: Path) -> dict[str, object]:
    """Return the state of all that a program may change: each file around its folder, and the processes it has."""
    found: dict[str, object] = {}
    for each in path.parent.parent.rglob("*"):
        known = each.lstat()
        data = each.read_bytes() if each.is_file() and not each.is_symlink() else b""
        found[str(each)] = (known.st_ino, known.st_mode, known.st_size, known.st_mtime_ns, data)
    for process in psutil.Process().children(recursive=True):
        found[f"process {process.pid}"] = process.name()
    return found


def differences(name: str, folder: Path, limits: list[str] | None = None) -> list[str]:
    """Return the differences between a plain run of the program `name` and one that was killed twice.

    The limits of the guarantee are added to `limits`.
    """
    alone, other = (prepared(folder / each / "work", name) for each in ("plain", "killed"))
    one, two = run(alone, rewritten=False), killed(other, folder / "past", limits)
    found = [each.error for each in (one, two) if each.error]
    if one.printed != two.printed:
        found.append(f"printed {two.printed!r} for {one.printed!r}")
    names = {each for each in one.files.keys() | two.files.keys() if one.files.get(each) != two.files.get(each)}
    found += [f"file {each}" for each in sorted(names)]
    if left_beside(alone.parent) != left_beside(other.parent):
        found.append("files beside the folder")
    return found


def main() -> int:
    """Run the proof of the programs that the command line names, or of all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(SETUPS))
    names = parser.parse_args().names
    failed, said = [], []
    for name in names:
        limits: list[str] = []
        with tempfile.TemporaryDirectory(prefix="daylight-setups-") as folder:
            try:
                found, broken = differences(name, Path(folder), limits), False
            except AssertionError as error:  # an attempt had no checkpoint
                found, broken = [str(error)], True
        told = f"not equal, and said before: {limits[0]}: " if limits and not broken else ""
        (said if told else failed).extend([name] * bool(found))
        print(f"{name:20} {told * bool(found)}{'; '.join(found) or 'equal'}", flush=True)
    equal = len(names) - len(failed) - len(said)
    print(
        f"{equal} of {len(names)} equal; said before: {', '.join(said) or 'none'}; not: {', '.join(failed) or 'none'}"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

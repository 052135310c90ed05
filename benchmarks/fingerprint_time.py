"""Measure the fingerprint of 20,000 files: the first, one without a change, and one after one file has changed.

They are compared with `git add` and `git status` of the same folder, which also cache digests by `stat` metadata.

    python -m benchmarks.fingerprint_time [--files 20000] [--bytes 4096] [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kernel_backend.data.cache import StatCache
from kernel_backend.data.folders import fingerprint

SETTLED_S = 2.5  # a file that was changed just now is not trusted


def make(root: Path, files: int, size: int) -> None:
    for number in range(files):
        folder = root / f"class_{number % 100:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"img_{number:06d}.png").write_bytes(os.urandom(size))


def seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def git(root: Path, *words: str) -> None:
    repository = root.parent / "repository"
    command = ["git", f"--git-dir={repository}", f"--work-tree={root}", "-c", "core.looseCompression=0", *words]
    subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder, "data"), Path(folder, "fingerprints.db")
        make(root, options.files, options.bytes)
        time.sleep(SETTLED_S)
        took: dict[str, list[float]] = {name: [] for name in ("first", "again", "one changed", "git add", "git status")}

        def timed(name: str, expected: int) -> None:
            began = time.perf_counter()
            found = fingerprint(root, StatCache(cache), print)
            took[name].append(time.perf_counter() - began)
            assert (found.read, len(found.files)) == (expected, options.files), (name, found.read)

        for number in range(options.rounds):
            cache.unlink(missing_ok=True)
            timed("first", options.files)
            timed("again", 0)
            changed = root / "class_00" / "img_000000.png"
            changed.write_bytes(bytes([number]) * options.bytes)
            timed("one changed", 1)
            subprocess.run(["rm", "-rf", root.parent / "repository"], check=True)
            git(root, "init")
            took["git add"].append(seconds(lambda: git(root, "add", "-A")))
            took["git status"].append(seconds(lambda: git(root, "status", "--porcelain")))
            time.sleep(SETTLED_S)
    print(f"{options.files:,} files of {options.bytes:,} bytes, seconds, median of {options.rounds} (least, most):")
    for name, all_ in took.items():
        print(f"  {name:<12} {statistics.median(all_):6.3f}  ({min(all_):.3f}, {max(all_):.3f})")


if __name__ == "__main__":
    main()

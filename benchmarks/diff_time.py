"""Measure the time of `diff` for two large experiments, beside `git diff --no-index` of their unpacked snapshots.

    python benchmarks/diff_time.py [--files 20000] [--reports 10000] [--rounds 5]

Each experiment declares a folder of `--files` files, has a definition of 400 lines and 30 project files, and has
`--reports` reports. They differ in a line of code, a hyperparameter, 112 files that were added and one that was edited,
and in their results from the middle on. The service reads store and archive anew in each round, as after its start.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.model.experiment import Config
from kernel_backend.model.reports import Report
from kernel_backend.model.resources import Share
from kernel_backend.model.snapshot import Data, Environment, Piece, Snapshot
from kernel_backend.service.verbs.compare import CompareVerbs
from kernel_backend.snapshots.archive import Archive, pack_snapshot
from kernel_backend.store.base import NewExperiment
from kernel_backend.store.sql import SqlStore

WHO = "dave"
ADDED = 112


def listed(files: int, other: bool) -> bytes:
    rows = [f"img_{n:06}.png\t{1000 + n}\t{hashlib.md5(b'%d' % n).hexdigest()}" for n in range(files + ADDED * other)]
    if other:
        rows[files // 2] = rows[files // 2][:-4] + "beef"
    return "".join(f"{row}\n" for row in rows).encode()


def snapshot(files: int, other: bool) -> tuple[Snapshot, str, dict[str, bytes]]:
    source = "".join(f"def layer_{n}(x, width={n}):\n    return x * width + {n}\n\n\n" for n in range(100))
    source = source.replace("width=50)", "width=51)") if other else source
    data = listed(files, other)
    declared = Data(
        name="leslie",
        path="/data/leslie",
        files=data.count(b"\n"),
        bytes=0,
        digest=hashlib.md5(data).hexdigest(),
        listed="data/0.tsv",
    )
    packages = {f"package-{n}": f"1.{n}" for n in range(200)}
    about = Environment(
        python="3", implementation="CPython", platform="Linux", cpu="c", cores=2, distributions=packages
    )
    piece = Piece(cell=1, line=1, count=source.count("\n"), cell_line=1)
    project = {f"project/net/part_{n}.py": b"x = 1\n" * 400 for n in range(30)}
    described = Snapshot(version="0", numerics=3, pieces=(piece,), roles_from=1, environment=about, data=(declared,))
    return described, source, {**project, "data/0.tsv": data}


def add(store: SqlStore, archive: Archive, files: int, reports: int, other: bool) -> int:
    described, source, beside = snapshot(files, other)
    id, data = pack_snapshot(source, described, beside)
    archive.put(id, data)
    draft = NewExperiment(
        owner=WHO,
        group=WHO,
        snapshot=id,
        config=Config(threads=1),
        params={"lr": 0.1 + other},
        python="python",
        cwd="/",
    )
    number = store.add_experiment(draft, at=1.0)[0].number
    attempt = store.add_attempt(number, 1, (Share(node="n", kind="cpu", address="", slots=(0,)),), None, "", at=2.0)
    told = [
        Report(
            number=step,
            kind="training",
            step=step,
            epoch=0.0,
            metrics={"loss": 1 / step + (other and step > reports // 2)},
        )
        for step in range(1, reports + 1)
    ]
    for begin in range(0, reports, 1000):
        store.accept(attempt.id, told[begin : begin + 1000], at=3.0)
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("files", 20_000), ("reports", 10_000), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        store, archive = SqlStore(home / "daylight.db"), Archive(home / "snapshots")
        a, b = (add(store, archive, options.files, options.reports, other) for other in (False, True))
        for number in (a, b):
            archive.unpack(store.experiment(number).snapshot, home / str(number))
        ours, theirs = [], []
        for _ in range(options.rounds):
            began = time.perf_counter()
            verbs = CompareVerbs(store, archive, CheckpointStorage(str(home / "checkpoints")))
            found = asyncio.run(verbs.diff(WHO, a, b))
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            command = ["git", "diff", "--no-index", str(home / str(a)), str(home / str(b))]
            subprocess.run(command, capture_output=True, check=False)
            theirs.append(time.perf_counter() - began)
        kinds = [each.kind for each in found.differences]
        assert kinds == ["code", "hyperparameters", "data"], kinds
        assert found.results.parted_at == options.reports // 2 + 1
        print(f"diff of two experiments with {options.files:,} files and {options.reports:,} reports each: ", end="")
        print(
            f"{min(ours):.2f} s (goal 2 s), {min(ours) / min(theirs):.1f} x git diff --no-index of their snapshots "
            f"({min(theirs):.2f} s), which knows no results"
        )
        store.close()


if __name__ == "__main__":
    main()

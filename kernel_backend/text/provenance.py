"""Format the inputs of a training besides its code: data, files, initial weights and runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_backend.model.facts import BatchSize, Delivered, FactName, LoaderSetting, Observed, TestResult, Weights
from kernel_backend.model.sizes import size
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.versions import read

MOST_FILES = 20  # of a list that is shown


def provenance_line(known: Mapping[FactName, Mapping[str, Any]], snapshot: Snapshot) -> str:
    """Format what is known about the data that a trial has read, in one line; "" if nothing is.

    Example: `data: 1,797 samples delivered (digest 5f3a...), 2 files read`. `known` has the recorded facts by name.
    """
    said = []
    if "delivered" in known:
        said.append(_delivered(read(Delivered, known["delivered"])))
    if "observed" in known and (count := _files(read(Observed, known["observed"]))):
        said.append(f"{_many(count, 'file')} read")
    declared = [f"{data.name} {_many(data.files, 'file')} {size(data.bytes)}" for data in snapshot.data]
    declared += [f"commit {commit}" for commit in snapshot.commits]
    parts = [", ".join(said), f"declared {', '.join(declared)}" if declared else ""]
    text = "; ".join(part for part in parts if part)
    return f"data: {text}" if text else ""


def fact_lines(known: Mapping[FactName, Mapping[str, Any]], snapshot: Snapshot) -> list[str]:
    """Return a line for each recorded fact about a trial, such as the files that it has read and library versions.

    `known` has the recorded facts by name.
    """
    lines = []
    if "delivered" in known:
        delivered = read(Delivered, known["delivered"])
        where = "the first epoch" if delivered.whole else "the part of the first epoch that was trained"
        lines.append(f"delivered  {_samples(delivered)} in {where}, digest {delivered.digest}, seed {delivered.seed}")
    lines += [
        f"declared   {data.name}: {_many(data.files, 'file')}, {size(data.bytes)}, digest {data.digest}"
        for data in snapshot.data
    ]
    lines += [f"commit     {commit}" for commit in snapshot.commits]
    if "observed" in known:
        lines += _observed_lines(read(Observed, known["observed"]))
    if "weights" in known:
        weights = read(Weights, known["weights"])
        lines.append(f"weights    {_many(len(weights.tensors), 'tensor')} at step 0, digest {weights.digest}")
    if "test" in known:
        test = read(TestResult, known["test"])
        found = ", ".join(f"{name} {value:.6g}" for name, value in test.metrics.items())
        lines.append(f"test       {found} with checkpoint {test.checkpoint}")
    if "batch" in known:
        batch = read(BatchSize, known["batch"])
        lines.append(f"batch size {batch.size}, found by --batch-size auto ({batch.reason})")
    if "loader" in known:
        loader = read(LoaderSetting, known["loader"])
        lines.append(
            f"loader     {_many(loader.workers, 'worker')}, each {_many(loader.prefetch, 'batch', 'batches')} ahead"
        )
    lines += [f"runtime    {name} {value}" for name, value in sorted(known.get("runtime", {}).items())]
    return lines


def _observed_lines(observed: Observed) -> list[str]:
    lines = [
        f"read       {file.path}  {size(file.size)}" + (f"  digest {file.digest}" if file.digest else "")
        for file in observed.files[:MOST_FILES]
    ]
    more = _files(observed) - len(lines)
    return [*lines, f"read       and {_many(more, 'more file')}"] if more else lines


def _delivered(delivered: Delivered) -> str:
    part = "" if delivered.whole else " of a part of the first epoch"
    return f"{_samples(delivered)}{part} delivered (digest {delivered.digest[:8]}...)"


def _samples(delivered: Delivered) -> str:
    return _many(delivered.samples, "sample")


def _many(count: int, word: str, several: str = "") -> str:
    return f"{count:,} {word if count == 1 else several or word + 's'}"


def _files(observed: Observed) -> int:
    return len(observed.files) + observed.more

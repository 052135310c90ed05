"""Facts: inputs of a result that can only be recorded during training, such as files read and sample digests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from kernel_backend.model.record import Record

# runtime: what only a rank knows of its hardware and libraries, a flat table of texts. The others are records below.
FactName = Literal["runtime", "delivered", "observed", "weights", "test"]


class Delivered(Record):
    """Samples that the loader delivered in the first epoch, whatever its source.

    Augmented samples follow from seed and code: digests are compared only where these and the coverage agree.
    """

    samples: int
    digest: str  # the sum modulo 2**64 of each sample's xxh3-64, in hex: equal at any batch size and number of slots
    seed: int
    code: str  # `kernel_backend.definition.code.code_id` of the snapshot
    whole: bool  # the epoch was gone through to its end
    uncovered: int = 0  # samples that could be neither looked into nor pickled: counted, and in no digest


class ObservedFile(Record):
    """A file that was opened for reading while the samples and the model were made."""

    path: str  # absolute
    size: int
    mtime: float  # seconds since the epoch
    digest: str | None = None  # xxh3-128; None for what is too large to be read once more


class Observed(Record):
    """Files that Python opened for reading, in the rank and its loader workers; readers in C may escape it."""

    files: tuple[ObservedFile, ...]
    more: int = 0  # how many are not listed


class Weights(Record):
    """Digests of the model's weights at step 0, before any training."""

    digest: str  # of all of it
    tensors: dict[str, str]  # name -> xxh3-128 of kind, shape and bytes


class TestResult(Record):
    """Loss and metrics over `test_data`, after the training."""

    metrics: dict[str, float]
    checkpoint: str  # whose weights were evaluated


class StoredFact(Record):
    """A fact as stored: the attempt that reported it, its name, time and value."""

    attempt: int
    name: FactName
    at: float
    value: dict[str, Any]


def known(facts: Iterable[StoredFact]) -> dict[FactName, dict[str, Any]]:
    """Return the facts of a trial: for each name, the value that the newest attempt has reported.

    If attempts ran on different machines, `runtime` has the values of each: `Xeon, then EPYC`.
    """
    found: dict[FactName, dict[str, Any]] = {}
    for fact in sorted(facts, key=lambda fact: fact.attempt):
        if fact.name == "runtime" and "runtime" in found:
            before = found["runtime"]
            names = {**before, **fact.value}
            found["runtime"] = {name: _then(before.get(name), fact.value.get(name)) for name in names}
        else:
            found[fact.name] = fact.value
    return found


def _then(before: str | None, now: str | None) -> str:
    if before is None or now is None or before.split(", then ")[-1] == now:
        return before or now or ""
    return f"{before}, then {now}"

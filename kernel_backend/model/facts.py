"""Define provenance records ("facts"): inputs of a result that are known only during training, such as files read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from kernel_backend.model.record import Record

# runtime: a rank's hardware and libraries, a flat table of texts. The others are the records below.
FactName = Literal["runtime", "delivered", "observed", "weights", "test", "loader", "batch"]


class Delivered(Record):
    """Digest of the samples that the data loader delivered in the first epoch.

    Augmented samples depend on seed and code, so digests are compared only if seed and code are equal.
    """

    samples: int
    digest: str  # sum modulo 2**64 of each sample's xxh3-64, in hex: independent of batch size and number of slots
    seed: int
    code: str  # code id of the snapshot (`kernel_backend.definition.code.code_id`)
    whole: bool  # the epoch was completed
    uncovered: int = 0  # samples that could not be hashed or pickled, and are not part of the digest


class ObservedFile(Record):
    """File that was read while the training's samples and model were created."""

    path: str  # absolute
    size: int
    mtime: float  # seconds since the epoch
    digest: str | None = None  # xxh3-128; None if the file is too large to be read again


class Observed(Record):
    """Files that Python code opened for reading in the rank and its data loader workers.

    Files opened by C code are not recorded.
    """

    files: tuple[ObservedFile, ...]
    more: int = 0  # number of files that are not listed


class Weights(Record):
    """Digests of the model's weights at step 0, before any training."""

    digest: str  # of all tensors
    tensors: dict[str, str]  # name -> xxh3-128 of kind, shape and bytes


class TestResult(Record):
    """Loss and metrics on `test_data` after the training."""

    metrics: dict[str, float]
    checkpoint: str  # checkpoint that was evaluated


class LoaderSetting(Record):
    """Number of data loader processes per slot, and of the batches that each process loads in advance.

    `--loader-workers auto` found both by measurement. They change no bit of the result.
    """

    workers: int = Field(ge=0)
    prefetch: int = Field(2, ge=1)


class BatchSize(Record):
    """Batch size that `--batch-size auto` found: over all slots, or per slot with `--per-slot-batch`.

    The result depends on this size. Therefore every later attempt and every rerun uses it again.
    """

    size: int = Field(ge=1)
    reason: str  # why it is no larger: `104 does not fit in 2.0 GB`

    def text(self, per_slot: bool) -> str:
        """Format the size with its reason: `batch size 96 per slot (104 does not fit in 2.0 GB)`.

        `per_slot` says whether it is the size per slot or that over all slots.
        """
        return f"batch size {self.size}{' per slot' if per_slot else ''} ({self.reason})"


class StoredFact(Record):
    """Provenance record as stored: which attempt reported it and when, its name and its value."""

    attempt: int
    name: FactName
    at: float
    value: dict[str, Any]


def known(facts: Iterable[StoredFact]) -> dict[FactName, dict[str, Any]]:
    """Return the value of each provenance record of a trial, as reported by its newest attempt.

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

"""Define one side of a comparison: one of the two experiments, with its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_backend.model.experiment import Experiment
from kernel_backend.model.facts import FactName
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.snapshot import Snapshot


@dataclass(frozen=True)
class Side:
    """One of two compared experiments, with its snapshot, and the provenance records and reports of its first trial."""

    experiment: Experiment
    snapshot: Snapshot
    files: Mapping[str, bytes]  # of the snapshot; of captured values, which may be large, the digests
    facts: Mapping[FactName, Mapping[str, Any]] = field(default_factory=dict)
    reports: Sequence[StoredReport] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)  # newest validation
    failure: str = ""  # why it failed; "" if it did not
    checkpoints: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # step -> part -> digest

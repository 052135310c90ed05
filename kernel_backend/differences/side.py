"""Define the record of one experiment in a comparison."""

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
    """Experiment with its snapshot, its facts, and the reports of its first trial."""

    experiment: Experiment
    snapshot: Snapshot
    files: Mapping[str, bytes]  # of the archive; for captured values, which may be large, their digests
    facts: Mapping[FactName, Mapping[str, Any]] = field(default_factory=dict)
    reports: Sequence[StoredReport] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)  # the newest validation
    failure: str = ""  # what ended it, if it failed
    checkpoints: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # by step: each part's digest

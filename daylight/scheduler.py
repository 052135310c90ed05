"""Simulate the scheduler of the service, to see how long users wait with a given workload and quotas."""

from __future__ import annotations

from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.scheduler.simulation.what_if import Waits, simulate
from kernel_backend.scheduler.simulation.workloads import Workload, read_trace, synthetic, write_trace

__all__ = ["Quota", "Waits", "Workload", "read_trace", "simulate", "synthetic", "write_trace"]

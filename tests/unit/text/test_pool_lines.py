"""Test the output of `daylight pool` about allocations that searches keep."""

from __future__ import annotations

import time

from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.cluster.pools import PoolStatus
from kernel_backend.text.pools import allocation_lines


def line(**fields) -> str:
    held = HeldAllocation(id="12-a", pool="gpu", experiment=12, slots=8, **{"job": "4711"} | fields)
    (said,) = allocation_lines(
        [PoolStatus(name="local", engine="local"), PoolStatus(name="gpu", engine="slurm", allocations=(held,))]
    )
    return said


def test_an_allocation_is_shown_with_its_job_its_search_and_what_it_does():
    at = time.mktime((2026, 11, 27, 18, 20, 0, 0, 0, -1))
    before = "pool gpu: job 4711, 8 slots of search #12: "
    assert line(running=True, ends=at, gang="12.7-1") == f"{before}kept until 18:20; 12.7-1 runs in it"
    assert line(running=True) == f"{before}kept; idle"
    assert line() == f"{before}waits in the site's queue"
    assert line(closing="others wait in pool gpu") == f"{before}is given back (others wait in pool gpu)"
    assert line(job="") == "pool gpu: job being submitted, 8 slots of search #12: waits in the site's queue"

"""Test parsing the output of Slurm's tools about a node."""

from __future__ import annotations

import time

from kernel_backend.cluster_setup.status import slurmd_start

SHOWN = """NodeName=n2 Arch=x86_64 CoresPerSocket=1
   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   BootTime=2026-11-27T12:34:00 SlurmdStartTime=2026-11-27T12:35:58
   LastBusyTime=2026-11-27T12:37:11
"""


def test_the_start_of_slurmd_is_a_local_time():
    local = time.mktime((2026, 11, 27, 12, 35, 58, 0, 0, -1))
    assert slurmd_start(SHOWN) == local


def test_a_node_that_never_registered_has_none():
    assert slurmd_start(SHOWN.replace("2026-11-27T12:35:58", "None")) == 0.0
    assert slurmd_start("Node n9 not found") == 0.0

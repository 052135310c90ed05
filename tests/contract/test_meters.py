"""Test the contract of slot meters: processes, processors and GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_backend.launch.utilisation.gpus import GpuMeter
from kernel_backend.launch.utilisation.processes import PackageMeter, ProcessMeter, trees
from kernel_backend.launch.utilisation.readings import Meter, Reading
from tests.support.nvml import FakeGpu, FakeNvml

COUNTERS = ("cpu_seconds", "joules", "package_joules", "busy_seconds")
NOBODY = 2**22 + 1  # above the largest process id


def zone(folder: Path, name: str, microjoules: int | str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text("262143328850\n")
    return folder


def processors(folder: Path) -> PackageMeter:
    zone(folder / "intel-rapl:0", "package-0", 5_000_000)
    zone(folder / "intel-rapl:1", "package-1", 7_000_000)
    zone(folder / "intel-rapl:0:0", "core", 2_000_000)
    zone(folder / "intel-rapl:2", "psys", 90_000_000)
    return PackageMeter(folder)


METERS: dict[str, Callable[[Path], Meter]] = {
    "processes": lambda folder: ProcessMeter(),
    "processors": processors,
    "processors that nobody may read": PackageMeter,
    "gpus": lambda folder: GpuMeter(FakeNvml(FakeGpu(), FakeGpu("GPU-2", gpu=0)), {0: "0", 1: "GPU-2"}),
    "gpus that tell nothing": lambda folder: GpuMeter(
        FakeNvml(FakeGpu(gpu=None, used=None, temperature=None, milliwatts=None, millijoules=None)), {0: "0", 1: "7"}
    ),
}


@pytest.fixture(params=METERS)
def meter(request: pytest.FixtureRequest, tmp_path: Path) -> Meter:
    return METERS[request.param](tmp_path)


def test_each_rank_is_answered_and_no_value_is_negative(meter: Meter) -> None:
    found = meter.read({0: (os.getpid(),), 1: (NOBODY,)})
    assert set(found) == {0, 1}
    assert all(value is None or value >= 0 for reading in found.values() for value in reading)
    assert meter.read({}) == {}


def test_counters_do_not_decrease(meter: Meter) -> None:
    first, second = (meter.read({0: (os.getpid(),)})[0] for _ in range(2))
    for name in COUNTERS:
        before, after = getattr(first, name), getattr(second, name)
        assert (before is None) == (after is None)
        assert before is None or after >= before


def test_processes_that_are_gone_have_no_time_and_no_memory() -> None:
    assert ProcessMeter().read({0: (NOBODY,)}) == {0: Reading()}


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process with a child, like a rank with a loader process."""
    child = "import time; time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", code])
    yield process
    for pid in reversed(trees({0: process.pid}).get(0, ())):
        os.kill(pid, 9)
    process.wait()


def test_children_count_for_their_rank(family: subprocess.Popen[bytes]) -> None:
    while len(found := trees({0: family.pid, 1: NOBODY}).get(0, ())) < 2:
        assert family.poll() is None
    assert found[0] == family.pid
    alone, both = (ProcessMeter().read({0: pids})[0] for pids in ((family.pid,), found))
    assert alone.memory is not None
    assert both.memory is not None
    assert both.memory >= alone.memory


def test_the_energy_of_whole_processors_is_added_up_also_when_a_counter_begins_anew(tmp_path: Path) -> None:
    meter = processors(tmp_path)
    assert meter.read({0: ()})[0].package_joules == 12.0
    zone(tmp_path / "intel-rapl:0", "package-0", 1_000_000)
    assert meter.read({0: ()})[0].package_joules == pytest.approx(262143.32885 + 1.0 + 7.0)
    zone(tmp_path / "intel-rapl:1", "package-1", "unreadable")
    assert meter.read({0: ()})[0] == Reading()


def test_values_of_a_gpu_are_those_of_its_rank() -> None:
    nvml = FakeNvml(FakeGpu(held={7: 100, 8: 50, 9: 10**9}), FakeGpu("GPU-2", gpu=0, millijoules=None))
    meter = GpuMeter(nvml, {0: "0", 1: "GPU-2", 2: "GPU-3"})
    assert meter.names() == {0: "Fake GPU-1", 1: "Fake GPU-2"}
    found = meter.read({0: (7, 8), 1: (11,), 2: (12,)})
    assert found[0] == Reading(gpu=0.5, gpu_memory=150, device_memory=2e9, device_total=8e9, temperature=60, joules=5.0)
    assert (found[1].gpu, found[1].joules, found[1].power) == (0.0, None, 100.0)
    assert found[1].gpu_memory is None  # a container may not see its processes
    assert found[2] == Reading()
    nvml.lost = True
    assert meter.read({0: (7,)}) == {0: Reading()}
    meter.close()
    assert nvml.closed

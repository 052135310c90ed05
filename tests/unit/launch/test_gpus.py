"""Test the detection of GPUs that break while ranks use them, with a simulated NVML."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from kernel_backend.launch.watch.gpus import GpuWatch


class NVMLError(Exception):
    """Error that NVML raises."""


class NVMLError_NotSupported(NVMLError):  # noqa: N801 - NVML's name
    """Error that NVML raises for a GPU without ECC."""


@dataclass
class Nvml:
    """Simulated NVML with ECC errors of GPUs (None without ECC), GPUs that do not answer, and a driver's problem."""

    errors: dict[str, int | None] = field(default_factory=lambda: {"GPU-1": 0, "GPU-2": 7, "GPU-3": None})
    lost: set[str] = field(default_factory=set)
    problem: str = ""

    def init(self) -> None:
        if self.problem:
            raise NVMLError(self.problem)

    def handle(self, index: int) -> str:
        found = list(self.errors)[index]
        if found in self.lost:
            raise NVMLError("GPU is lost")
        return found

    def ecc(self, handle: str, *_: Any) -> int:
        count = self.errors[handle]
        if count is None:
            raise NVMLError_NotSupported
        return count


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    state, module = Nvml(), ModuleType("pynvml")
    module.__dict__.update(
        NVMLError=NVMLError,
        NVMLError_NotSupported=NVMLError_NotSupported,
        NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
        NVML_VOLATILE_ECC=0,
        nvmlInit=state.init,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(state.errors),
        nvmlDeviceGetHandleByIndex=state.handle,
        nvmlDeviceGetUUID=lambda handle: handle,
        nvmlDeviceGetName=lambda handle: "A100",
        nvmlDeviceGetTotalEccErrors=state.ecc,
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return state


def test_gpus_that_are_as_before_have_no_error(nvml: Nvml) -> None:
    assert GpuWatch().error() == ""


def test_a_gpu_that_is_gone_or_does_not_answer_is_named(nvml: Nvml) -> None:
    watch = GpuWatch()
    nvml.lost.add("GPU-2")
    assert watch.error() == "GPU A100 (GPU-2) is gone"
    del nvml.errors["GPU-1"]
    assert watch.error() == "GPU A100 (GPU-1) is gone"


def test_ecc_errors_count_from_the_beginning_of_the_ranks(nvml: Nvml) -> None:
    watch = GpuWatch()
    nvml.errors["GPU-2"] = 9
    assert watch.error() == "GPU A100 (GPU-2) had 2 uncorrectable ECC errors"


def test_a_driver_that_no_longer_answers_is_told(nvml: Nvml) -> None:
    watch = GpuWatch()
    nvml.problem = "Driver Not Loaded"
    assert watch.error() == "the driver of the GPUs does not answer: Driver Not Loaded"


def test_a_machine_without_gpus_has_none_that_break(nvml: Nvml) -> None:
    nvml.problem = "Driver Not Loaded"
    watch = GpuWatch()
    assert watch.error() == ""

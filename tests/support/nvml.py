"""Simulate NVML, with GPUs whose values a test sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """Error that NVML raises."""


@dataclass
class FakeGpu:
    """Simulated GPU; a value of None means that the GPU does not support it."""

    uuid: str = "GPU-1"
    gpu: int | None = 50  # percent
    used: int | None = 2 * 10**9
    total: int = 8 * 10**9
    temperature: int | None = 60
    milliwatts: int | None = 100_000
    millijoules: int | None = 5_000
    held: dict[int, int | None] = field(default_factory=dict)  # bytes by process


class FakeNvml:
    """Functions of pynvml that Daylight uses, for simulated GPUs. Once `lost` is set, every call fails."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus, self.lost, self.closed = gpus, False, False

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        return self._known(self.gpus[index] if index < len(self.gpus) else None)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:  # noqa: N802
        return self._known(next((each for each in self.gpus if each.uuid == uuid), None))

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:  # noqa: N802
        return self._known(f"Fake {gpu.uuid}")

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=self._known(gpu.gpu))

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> Any:  # noqa: N802
        return SimpleNamespace(used=self._known(gpu.used), total=gpu.total)

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> int:  # noqa: N802
        return self._known(gpu.temperature)

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:  # noqa: N802
        return self._known(gpu.milliwatts)

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu) -> int:  # noqa: N802
        return self._known(gpu.millijoules)

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[Any]:  # noqa: N802
        self._known(gpu)
        return [SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in gpu.held.items()]

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.closed = True

    def _known(self, value: Any) -> Any:
        if self.lost or value is None:
            raise NVMLError("not supported")
        return value

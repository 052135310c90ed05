"""Read utilisation, memory, temperature and energy of NVIDIA GPUs by the library NVML."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from kernel_backend.launch.utilisation.readings import Reading, Trees


def load() -> Any:
    """Return the initialised NVML library; None if the package, a driver or a GPU is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


class GpuMeter:
    """Meter of utilisation, memory, temperature and energy of each rank's GPU."""

    def __init__(self, nvml: Any, devices: Mapping[int, str]) -> None:
        """Find the GPUs by `nvml`, the library; `devices` has the index or UUID of each rank's GPU."""
        self._nvml = nvml
        found = {rank: self._try(_handle, nvml, device) for rank, device in devices.items()}
        self._handles = {rank: handle for rank, handle in found.items() if handle is not None}

    def names(self) -> dict[int, str]:
        """Return the product name of each rank's GPU, by rank; unknown ones are left out."""
        found = {rank: self._try(self._nvml.nvmlDeviceGetName, handle) for rank, handle in self._handles.items()}
        return {rank: str(name) for rank, name in found.items() if name is not None}

    def read(self, trees: Trees) -> dict[int, Reading]:
        """Return a reading of each rank's GPU, by rank; values that a GPU does not provide are None.

        `trees` has the process ids of each rank and its descendants.
        """
        return {rank: self._reading(rank, pids) for rank, pids in trees.items()}

    def close(self) -> None:
        """Shut NVML down."""
        self._try(self._nvml.nvmlShutdown)

    def _reading(self, rank: int, pids: tuple[int, ...]) -> Reading:
        handle, nvml = self._handles.get(rank), self._nvml
        if handle is None:
            return Reading()
        rates = self._try(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._try(nvml.nvmlDeviceGetMemoryInfo, handle)
        joules = self._try(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)  # millijoules, since Volta
        power = self._try(nvml.nvmlDeviceGetPowerUsage, handle) if joules is None else None  # milliwatts
        return Reading(
            gpu=None if rates is None else rates.gpu / 100,
            gpu_memory=self._own_memory(handle, pids),
            device_memory=None if memory is None else float(memory.used),
            device_total=None if memory is None else float(memory.total),
            temperature=self._try(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            power=None if power is None else power / 1000,
            joules=None if joules is None else joules / 1000,
        )

    def _own_memory(self, handle: Any, pids: tuple[int, ...]) -> float | None:
        """Return how many bytes of GPU memory the processes `pids` of a rank have allocated; None if unknown.

        `handle` is NVML's handle of the GPU. In a container, NVML may not list the processes, or list them by other
        process ids.
        """
        held = self._try(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
        own = [each.usedGpuMemory for each in held if each.pid in pids]
        return float(sum(own)) if own and None not in own else None

    def _try(self, call: Callable[..., Any], *arguments: Any) -> Any:
        with contextlib.suppress(self._nvml.NVMLError, ValueError):
            return call(*arguments)
        return None


def _handle(nvml: Any, device: str) -> Any:
    """Return NVML's handle of a GPU, given by index or UUID; raise NVMLError if there is no such GPU."""
    return nvml.nvmlDeviceGetHandleByIndex(int(device)) if device.isdigit() else nvml.nvmlDeviceGetHandleByUUID(device)

"""Detect by the library NVML whether GPUs of this node break while ranks use them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple


class _Gpu(NamedTuple):
    """Name of a GPU, and its number of uncorrectable memory (ECC) errors since the driver was loaded.

    The number is 0 for a GPU without ECC.
    """

    name: str
    errors: int


class GpuWatch:
    """Detector of GPUs that break: it compares the node's NVIDIA GPUs with their state when the ranks started."""

    def __init__(self) -> None:
        """Record the state of the GPUs now; without NVML nothing is recorded, and no fault will be detected."""
        self._before, _ = _gpus()

    def error(self) -> str:
        """Return a text on a GPU that broke after the start, such as `GPU A100 (GPU-5f..) is gone`; "" if none did."""
        if not self._before:
            return ""
        now, problem = _gpus()
        if problem:
            return f"the driver of the GPUs does not answer: {problem}"
        return next(self._changes(now), "")

    def _changes(self, now: dict[str, _Gpu]) -> Iterator[str]:
        for id, before in self._before.items():
            if id not in now:
                yield f"GPU {before.name} ({id}) is gone"
            elif (new := now[id].errors - before.errors) > 0:
                yield f"GPU {before.name} ({id}) had {new} uncorrectable ECC error{'s' if new > 1 else ''}"


def _gpus() -> tuple[dict[str, _Gpu], str]:
    """Return the GPUs that answer, by UUID, and why the driver does not answer ("" if it does, or NVML is missing)."""
    try:
        import pynvml
    except ImportError:
        return {}, ""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {}, str(error)
    try:
        found: dict[str, _Gpu] = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            with contextlib.suppress(pynvml.NVMLError):  # a GPU that has fallen off the bus counts as gone
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                found[str(pynvml.nvmlDeviceGetUUID(handle))] = _Gpu(
                    str(pynvml.nvmlDeviceGetName(handle)), _ecc_errors(pynvml, handle)
                )
        return found, ""
    except pynvml.NVMLError as error:
        return {}, str(error)
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _ecc_errors(nvml: Any, handle: Any) -> int:
    try:
        kind, counter = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        return int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter))
    except nvml.NVMLError_NotSupported:
        return 0

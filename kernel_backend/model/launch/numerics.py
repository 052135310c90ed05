"""Environment variables that make equal inputs give equal bits: part of every experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Scope = Literal["off", "host", "portable"]

# The instruction sets that every x86-64 of the last decade has: code paths chosen by the CPU differ in their sums.
_PORTABLE = {
    "ATEN_CPU_CAPABILITY": "default",
    "DNNL_MAX_CPU_ISA": "SSE41",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
}
_HOST = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def numerics_env(scope: Scope, threads: int) -> Mapping[str, str]:
    """Return a rank's variables: hash seed and threads always, others with `--reproducible`.

    They are read when torch is imported, so the parent process must set them, not the process itself.
    """
    threaded = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if scope == "off":
        return threaded
    steady = {"OMP_DYNAMIC": "FALSE", "MKL_DYNAMIC": "FALSE"}
    return threaded | steady | _HOST | (_PORTABLE if scope == "portable" else {})

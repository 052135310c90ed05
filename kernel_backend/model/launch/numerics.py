"""Define environment variables that make results bit-identical if inputs are equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Scope = Literal["off", "host", "portable"]

# Instruction sets of every x86-64 CPU of the last decade: code paths that depend on the CPU give other sums.
_PORTABLE = {
    "ATEN_CPU_CAPABILITY": "default",
    "DNNL_MAX_CPU_ISA": "SSE41",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
}
_HOST = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def numerics_env(scope: Scope, threads: int) -> Mapping[str, str]:
    """Return the environment variables that fix a rank's hash seed and its number of threads.

    Unless `scope` is `off`, as without `--reproducible`, there are further ones for bit-identical arithmetic: on this
    kind of host, or with `portable` on any x86-64 CPU.
    The parent process of the rank must set them, because torch reads them at import.
    """
    threaded = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if scope == "off":
        return threaded
    steady = {"OMP_DYNAMIC": "FALSE", "MKL_DYNAMIC": "FALSE"}
    return threaded | steady | _HOST | (_PORTABLE if scope == "portable" else {})

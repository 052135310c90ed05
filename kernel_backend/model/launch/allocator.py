"""Define environment variables that let a rank's process reuse the memory which a training step frees."""

from __future__ import annotations

from collections.abc import Mapping

_MIB = 1 << 20
# glibc gives freed blocks back to the system from a size that depends on the order of earlier calls. A step that frees
# and allocates its activations and gradients then touches fresh pages each time, which took up to a fifth of its time.
_GLIBC = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * _MIB),  # the largest that glibc accepts
    "MALLOC_TRIM_THRESHOLD_": str(64 * _MIB),  # of free memory at the end of the heap
}


def allocator_env(base: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment variables for a rank's memory allocator, without those that `base` sets already.

    They must be set before the process starts. They have no effect with another C library, or another allocator in
    `LD_PRELOAD`. See `mallopt(3)`.
    """
    return {name: value for name, value in _GLIBC.items() if name not in base}

"""Digest the states of global random generators, such as torch's, to compare notebook and job."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable
from typing import Any

import xxhash

# By package: the statement that seeds it.
SEEDING = {"random": "random.seed(0)", "numpy": "np.random.seed(0)", "torch": "torch.manual_seed(0)"}
_READ: dict[str, Callable[[Any], Any]] = {
    "random": lambda random: random.getstate(),
    "numpy": lambda numpy: [
        part if isinstance(part, str | int | float) else part.tobytes() for part in numpy.random.get_state()
    ],
    "torch": lambda torch: torch.get_rng_state().numpy().tobytes(),
}


def random_digests(packages: Iterable[str]) -> dict[str, str]:
    """Return, by package, a digest of the package's random state in this process, if the package is imported."""
    return {
        name: xxhash.xxh3_128_hexdigest(pickle.dumps(_READ[name](sys.modules[name]), protocol=4))
        for name in packages
        if name in _READ and name in sys.modules
    }

"""Define the largest values that options may have, and parse whole numbers within bounds."""

from __future__ import annotations

from kernel_backend.errors import InvalidRequest

# The largest values that make sense. Products of two of them (steps of all epochs) still fit into 64 bits, and each
# fits into a 32-bit column.
COUNT = 1_000_000_000
GANG = 65_536  # most processes of a training
TRIALS = 1_000_000  # most trials of a search
CENTURY = 876_000 * 3600.0  # seconds
SLOT_TIME = 1_000_000_000 * 3600.0  # slot-seconds


def whole_number(text: str, label: str = "", least: int = 0, most: int = 2**63 - 1) -> int:
    """Parse an integer from `least` to `most`; raises InvalidRequest for any other text.

    The error's message begins with `label`, such as the name of an option.
    """
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        up_to = f"to {most:,}" if most < 2**63 - 1 else "up"
        raise InvalidRequest(f"{label}{text[:50]}: must be a whole number from {least} {up_to}")
    return int(text)

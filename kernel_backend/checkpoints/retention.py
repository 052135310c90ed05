"""Which checkpoints may go: a pure function over a trial's own list."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_backend.checkpoints.base import Manifest

KEEP = 3
# A fall-back needs its predecessor: should the newest turn out damaged, the one before must still be there.
LEAST = 2


def expendable(committed: Sequence[Manifest], keep: int = KEEP) -> list[Manifest]:
    """Those that may be deleted, oldest first: all but the newest `keep`, of which there are never fewer than two.

    A damaged checkpoint is set aside when it is found and so is never in `committed`.
    """
    in_order = sorted(committed, key=lambda manifest: manifest.order)
    return in_order[: -max(keep, LEAST)]

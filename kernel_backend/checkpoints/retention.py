"""Which checkpoints may go: a pure function over a trial's own list."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kernel_backend.checkpoints.base import Manifest

KEEP = 3
# A fall-back needs its predecessor: should the newest turn out damaged, the one before must still be there.
LEAST = 2


def expendable(
    committed: Sequence[Manifest], pinned: Collection[str] = (), keep: int = KEEP
) -> list[Manifest]:
    """Those that may be deleted, oldest first: all but the newest `keep` (never fewer than two) and the `pinned` ids.

    A damaged checkpoint is set aside when it is found and so is never in `committed`.
    """
    in_order = sorted(committed, key=lambda manifest: manifest.order)
    older = in_order[: -max(keep, LEAST)]
    return [manifest for manifest in older if manifest.id not in pinned]

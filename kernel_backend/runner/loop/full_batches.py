"""Reject batches with fewer samples than slots, for options under which every slot must compute in every step."""

from __future__ import annotations

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config


def check_shared(config: Config, samples: int, slots: int) -> None:
    """Raise InvalidDefinition if a global batch of `samples` samples has fewer than one for each slot.

    This concerns only the options `--sync-bn` and `--strategy fsdp2`, under which every slot must compute in every
    step.
    """
    flag = "--sync-bn" if config.sync_bn else "--strategy fsdp2" if config.strategy == "fsdp2" else None
    if flag is not None and samples < slots:
        raise InvalidDefinition(
            f"{flag} needs a sample on each of {slots} slots, and the last batch of an epoch has {samples}: choose "
            "another --batch-size, or add --uneven drop"
        )

"""Compute torchmetrics of a LightningModule over the samples of all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from kernel_backend.runner.ranks.backends import Ranks


def sync_metrics(module: nn.Module, ranks: Ranks, syncs: Callable[[], bool]) -> None:
    """Make the torchmetrics in a module gather their states from all ranks through Daylight's process group.

    `syncs` returns True while each rank processes only its own share of the samples, so that states must be gathered.
    """

    def gathered(tensor: Tensor, group: Any = None) -> list[Tensor]:
        return [each.to(tensor.device) for each in ranks.all_gather_object(tensor.detach().cpu())]

    for each in module.modules():
        if hasattr(each, "metric_state") and hasattr(each, "dist_sync_fn"):
            metric: Any = each
            metric.dist_sync_fn, metric.distributed_available_fn = gathered, syncs

"""Read, order and collate the samples of each step, with equal results for any number of ranks and loader workers."""

from kernel_backend.runner.data.batches import Batches
from kernel_backend.runner.data.shares import Batch, share
from kernel_backend.runner.data.source import Source, source

__all__ = ["Batch", "Batches", "Source", "share", "source"]

"""The data of a training: which samples a step trains on, read, drawn and collated the same whoever does it."""

from kernel_backend.runner.data.batches import Batches
from kernel_backend.runner.data.shares import Batch, share
from kernel_backend.runner.data.source import Source, source

__all__ = ["Batch", "Batches", "Source", "share", "source"]

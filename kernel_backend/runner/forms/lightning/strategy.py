"""Run Lightning's steps on this rank: sum gradients over the ranks, and finish checkpoint copies before each update."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor

from kernel_backend.runner.context import RankContext
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.forms.lightning.api import SingleDeviceStrategy
from kernel_backend.runner.timing.clock import CLOCK


class StepParts(Protocol):
    """Methods of the training that the strategy calls within a step."""

    rank: RankContext

    def loader(self, loader: Any) -> Any:
        """Return the loader to be used in place of a user's DataLoader."""

    def sum_gradients(self, loss: Tensor, scaled: Tensor, compute: Callable[[Tensor], None]) -> None:
        """Run `compute`, which computes this rank's gradients from `scaled`, and sum them over all ranks.

        `loss` is this rank's loss, and `scaled` the loss to differentiate, which Lightning may have scaled.
        """

    def before_update(self) -> None:
        """Wait until copies for a checkpoint are complete; called before the weights are updated."""

    def counted(self) -> AbstractContextManager[None]:
        """Return a context that undoes changes of metrics and attributes if this rank has no samples of the batch."""

    def is_scratch(self, path: str) -> bool:
        """Return True if `path` is a default of Lightning, not chosen by the user: no checkpoint need be written."""

    def begin_validation(self) -> None:
        """Prepare a validation, for which all ranks use the buffers of rank 0."""


class RankStrategy(SingleDeviceStrategy):
    """Lightning strategy for one of Daylight's ranks, whose process group Lightning does not manage."""

    strategy_name = "daylight"

    def __init__(self, training: StepParts) -> None:
        """Set up the strategy for the training's device and process group."""
        super().__init__(device=training.rank.device)
        self._training = training
        ranks = training.rank.ranks
        self.global_rank, self.local_rank, self.world_size = ranks.rank, ranks.local_rank, ranks.size

    @property
    def is_global_zero(self) -> bool:
        """Return True on rank 0."""
        return self.global_rank == 0

    @property
    def is_distributed(self) -> bool:
        """Return False, so that Lightning leaves samplers as they are: Daylight gives each rank its samples."""
        return False

    def process_dataloader(self, dataloader: object) -> object:
        """Return a loader of this rank's shares to be used in place of a user's DataLoader."""
        return self._training.loader(dataloader)

    def backward(self, closure_loss: Tensor, optimizer: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Compute gradients and sum them over all ranks, before Lightning's hooks get them."""
        plugin, module = self.precision_plugin, self.lightning_module
        assert module is not None
        self.pre_backward(closure_loss)
        scaled = plugin.pre_backward(closure_loss, module)

        def compute(loss: Tensor) -> None:
            plugin.backward(loss, module, optimizer, *args, **kwargs)

        self._training.sum_gradients(closure_loss, scaled, compute)
        done = plugin.post_backward(scaled, module)
        self.post_backward(done)
        if module.automatic_optimization:
            self._training.before_update()
        return done

    def optimizer_step(self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **kwargs: Any) -> Any:
        """Update the weights; with manual optimization, all ranks draw the same random numbers during the update."""
        assert self.lightning_module is not None
        if self.lightning_module.automatic_optimization:
            return super().optimizer_step(optimizer, closure, model, **kwargs)
        with RandomStates().aside() if self.world_size > 1 else nullcontext():
            self._training.before_update()
            return super().optimizer_step(optimizer, closure, model, **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's training step; undo its changes of metrics and attributes if the rank's share is empty."""
        with CLOCK.part("forward"), self._training.counted():
            return super().training_step(*args, **kwargs)

    def batch_to_device(self, *args: Any, **kwargs: Any) -> Any:
        """Move a batch to this rank's device; on a GPU, the time that it takes is measured."""
        with CLOCK.part("transfer") if self.root_device.type != "cpu" else nullcontext():
            return super().batch_to_device(*args, **kwargs)

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's validation step; undo its changes of metrics and attributes if the rank's share is empty."""
        with self._training.counted():
            return super().validation_step(*args, **kwargs)

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Return the mean, sum, minimum or maximum of `tensor` over all ranks, as `reduce_op` says.

        Values are added in the order of the ranks, so that the result has the same bits in each run.
        """
        ranks = self._training.rank.ranks
        if ranks.size == 1:
            return tensor
        value = tensor if isinstance(tensor, Tensor) else torch.tensor(tensor, device=self.root_device)
        found = torch.stack([each.to(value.device) for each in ranks.all_gather_object(value.detach().cpu())])
        operation = str(getattr(reduce_op, "name", reduce_op) or "mean").lower()
        if operation in ("mean", "avg"):
            # A mean of whole numbers has a fraction.
            return found.mean(0, dtype=None if value.is_floating_point() or value.is_complex() else torch.float64)
        if operation == "sum":
            return found.sum(0)
        return found.amin(0) if operation == "min" else found.amax(0)

    def all_gather(self, tensor: Tensor, group: Any = None, sync_grads: bool = False) -> Tensor:
        """Return the tensors of all ranks, stacked in rank order; with one rank, the tensor itself."""
        ranks = self._training.rank.ranks
        if ranks.size == 1:
            return tensor
        return torch.stack([each.to(tensor.device) for each in ranks.all_gather_object(tensor.detach().cpu())])

    def barrier(self, *args: Any, **kwargs: Any) -> None:
        """Return once all ranks have called this."""
        self._training.rank.ranks.barrier()

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Return the object that rank `src` has passed."""
        return self._training.rank.ranks.broadcast_object(obj, src)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Write a checkpoint that a Lightning callback saves to `filepath`, if the user has chosen that path.

        If Lightning has chosen it by default, nothing is written: Daylight saves checkpoints of its own.
        """
        if not self._training.is_scratch(str(filepath)):
            super().save_checkpoint(checkpoint, filepath, storage_options)

    def on_validation_start(self) -> None:
        """Begin a validation, for which all ranks use the buffers of rank 0."""
        self._training.begin_validation()

"""Run Lightning's steps on this rank: gradients are summed over the ranks, and checkpoints wait for no step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor

from kernel_backend.runner.context import RankContext
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.forms.lightning.api import SingleDeviceStrategy
from kernel_backend.runner.gradients.waiting import spend_gradients


class StepParts(Protocol):
    """Methods that Lightning calls within its steps."""

    rank: RankContext

    def loader(self, loader: Any) -> Any:
        """Return the loader that Lightning iterates over in the place of a user's."""

    def sum_gradients(self, loss: Tensor, scaled: Tensor, compute: Callable[[Tensor], None]) -> None:
        """Compute the gradients of this rank's share and sum those of all ranks."""

    def before_update(self) -> None:
        """Prepare a change of the weights."""

    def counted(self) -> AbstractContextManager[None]:
        """Return a context for a step whose share may be empty."""

    def is_scratch(self, path: str) -> bool:
        """Return True for a path that Lightning chose."""

    def begin_validation(self) -> None:
        """Prepare a validation."""


class RankStrategy(SingleDeviceStrategy):
    """Strategy of one rank of a gang; its peers are those of the platform."""

    strategy_name = "daylight"

    def __init__(self, training: StepParts) -> None:
        """Set up the strategy for the training's device and ranks."""
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
        """Return False: the platform shares out samples, and Lightning leaves samplers as they are."""
        return False

    def process_dataloader(self, dataloader: object) -> object:
        """Replace a user's DataLoader by the shares of this rank."""
        return self._training.loader(dataloader)

    def backward(self, closure_loss: Tensor, optimizer: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Compute gradients and sum them over all ranks, before hooks may look at them."""
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
        """Update weights; in manual optimization all ranks draw the same random numbers meanwhile."""
        assert self.lightning_module is not None
        if self.lightning_module.automatic_optimization:
            return super().optimizer_step(optimizer, closure, model, **kwargs)
        with RandomStates().aside() if self.world_size > 1 else nullcontext():
            self._training.before_update()
            done = super().optimizer_step(optimizer, closure, model, **kwargs)
            spend_gradients(optimizer)
            return done

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's training step; an empty share leaves no trace in metrics."""
        with self._training.counted():
            return super().training_step(*args, **kwargs)

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's validation step; an empty share leaves no trace in metrics."""
        with self._training.counted():
            return super().validation_step(*args, **kwargs)

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Return the mean, sum, least or largest of all ranks' values, added in the order of the ranks."""
        ranks = self._training.rank.ranks
        if ranks.size == 1:
            return tensor
        value = tensor if isinstance(tensor, Tensor) else torch.tensor(tensor, device=self.root_device)
        found = torch.stack([each.to(value.device) for each in ranks.all_gather_object(value.detach().cpu())])
        operation = str(getattr(reduce_op, "name", reduce_op) or "mean").lower()
        if operation in ("mean", "avg"):
            return found.double().mean(0).to(value.dtype) if not value.is_floating_point() else found.mean(0)
        if operation == "sum":
            return found.sum(0)
        return found.amin(0) if operation == "min" else found.amax(0)

    def all_gather(self, tensor: Tensor, group: Any = None, sync_grads: bool = False) -> Tensor:
        """Return the tensors of all ranks, stacked."""
        ranks = self._training.rank.ranks
        if ranks.size == 1:
            return tensor
        return torch.stack([each.to(tensor.device) for each in ranks.all_gather_object(tensor.detach().cpu())])

    def barrier(self, *args: Any, **kwargs: Any) -> None:
        """Wait for all ranks."""
        self._training.rank.ranks.barrier()

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Return the object of rank `src`."""
        return self._training.rank.ranks.broadcast_object(obj, src)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Write a checkpoint file of a callback, unless it belongs to a folder that Lightning chose."""
        if not self._training.is_scratch(str(filepath)):
            super().save_checkpoint(checkpoint, filepath, storage_options)

    def on_validation_start(self) -> None:
        """Begin a validation: buffers of rank 0 are those of all."""
        self._training.begin_validation()

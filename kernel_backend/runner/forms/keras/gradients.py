"""Average the gradients of Keras on TensorFlow over the ranks, within the compiled training step.

Torch averages gradients in its backward pass, by hooks. TensorFlow has none, so that they are averaged where a Keras
optimizer is to apply them, before it clips or accumulates them. The step stays one graph: a function of Python in it
hands the gradients, as flat tensors of a fixed layout, to torch.distributed or Horovod, which share their memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kernel_backend.runner.gradients.reducer import buckets
from kernel_backend.runner.ranks.backends import Ranks

Apply = Callable[..., Any]


class StepGradients:
    """Averages over the ranks of the gradients that the Keras optimizers of a training apply."""

    def __init__(self, ranks: Ranks, weight: Callable[[], float], device: torch.device) -> None:
        """Create the averages, which the ranks exchange on `device`.

        `weight` returns this rank's fraction of the current global batch; the fractions of all ranks add up to 1.
        """
        self._ranks, self._weight, self._device = ranks, weight, device
        self._error: Exception | None = None
        self._last: Any = None  # the graph's latest exchange, after which the next one runs

    def applied(self, name: str, optimizer: Any) -> Apply:
        """Return the `apply` of a Keras optimizer, with gradients averaged over the ranks before they are applied.

        `name` identifies the optimizer in messages between ranks.
        """
        apply: Apply = optimizer.apply

        @functools.wraps(apply)
        def averaged(grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
            variables = optimizer._trainable_variables if trainable_variables is None else list(trainable_variables)
            return apply(self._averages(name, list(grads), variables), trainable_variables)

        return averaged

    def guarded(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap a step of Keras so that the errors of an exchange are raised unchanged, not as TensorFlow's."""

        def guarded(iterator: Any) -> Any:
            try:
                return step(iterator)
            except Exception:
                if self._error is not None:
                    raise self._error from None
                raise

        return guarded

    def _averages(self, name: str, gradients: list[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the averages of gradients over the ranks; None for a variable that no rank has used.

        Each `tf.IndexedSlices`, such as the gradient of an embedding, becomes a dense tensor.
        """
        import tensorflow as tf

        used = [each is not None for each in gradients]
        if tf.executing_eagerly():  # else all ranks use the variables that are in their graph, which is the same
            used = self._anywhere(name, used)
        places = [place for place, anywhere in enumerate(used) if anywhere]
        dense = [
            tf.zeros_like(variables[place]) if gradients[place] is None else tf.convert_to_tensor(gradients[place])
            for place in places
        ]
        averages: list[Any] = [None] * len(gradients)
        for number, own in enumerate(buckets([_summed(each) for each in dense])):
            wide = tf.float64 if dense[own[0]].dtype == tf.float64 else tf.float32
            flat = tf.concat([tf.reshape(tf.cast(dense[each], wide), [-1]) for each in own], 0)
            total = self._exchanged(f"gradients.{name}.{number}", flat)
            pieces = tf.split(total, [dense[each].shape.num_elements() for each in own])
            for each, piece in zip(own, pieces, strict=True):
                averages[places[each]] = tf.cast(tf.reshape(piece, dense[each].shape), dense[each].dtype)
        return averages

    def _exchanged(self, name: str, flat: Any) -> Any:
        """Return the average over the ranks of a flat tensor.

        TensorFlow runs what does not depend on another in any order, and the ranks need the same one: in a graph, each
        exchange follows the one before.
        """
        import tensorflow as tf

        if tf.executing_eagerly():
            return tf.py_function(functools.partial(self._exchange, name), [flat], flat.dtype)
        before = self._last if self._last is not None and self._last.graph is flat.graph else None
        with tf.control_dependencies([] if before is None else [before]):
            total = tf.py_function(functools.partial(self._exchange, name), [flat], flat.dtype)
        self._last = total.op
        total.set_shape(flat.shape)
        return total

    def _exchange(self, name: str, flat: Any) -> Any:
        from tensorflow.experimental import dlpack

        try:
            own: Tensor = torch.from_dlpack(dlpack.to_dlpack(flat))  # type: ignore[attr-defined]
            # A tensor of its own for each exchange, since TensorFlow keeps it for as long as it needs.
            weighted = torch.mul(own, self._weight()).to(self._device)
            return dlpack.from_dlpack(self._ranks.allreduce_sum(weighted, name).__dlpack__())
        except Exception as error:
            self._error = error
            raise

    def _anywhere(self, name: str, used: list[bool]) -> list[bool]:
        """Return, for each variable, whether any rank has a gradient of it."""
        flags = torch.tensor([float(each) for each in used], device=self._device)
        return [each > 0 for each in self._ranks.allreduce_sum(flags, f"gradients.{name}.used").tolist()]


def _summed(gradient: Any) -> tuple[torch.dtype, int]:
    """Return the dtype in which a gradient is summed over the ranks, and its bytes; sums in 16 bits are inexact."""
    dtype = torch.float64 if gradient.dtype.name == "float64" else torch.float32
    return dtype, gradient.shape.num_elements() * dtype.itemsize

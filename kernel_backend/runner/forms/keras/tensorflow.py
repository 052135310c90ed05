"""Train with Keras on TensorFlow: set it up for bit-equal results, and feed `fit` with batches that torch reads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from keras.src import tree  # Keras has no public name for these two
from keras.src.trainers.data_adapters.data_adapter_utils import NUM_BATCHES_FOR_TENSOR_SPEC, get_tensor_spec
from torch import Tensor

from kernel_backend.runner.determinism import seeds


def make_deterministic(seed: int, *, operations: bool) -> None:
    """Seed TensorFlow's global generator; with `operations`, make TensorFlow use deterministic operations, too."""
    import tensorflow as tf

    tf.random.set_seed(seeds.mix(seed, "init", "tensorflow") % 2**31)
    if operations:
        tf.config.experimental.enable_op_determinism()


class Feed:
    """Batches of torch tensors as a `tf.data.Dataset`; each batch is read only when a step needs it."""

    def __init__(self, batches: Callable[[], Iterator[Any]]) -> None:
        """Create the feed; `batches` returns an iterator over the batches of one pass over the data."""
        self._batches = batches
        self._error: BaseException | None = None

    def dataset(self) -> Any:
        """Return the dataset; every iteration over it is one pass."""
        import tensorflow as tf

        options = tf.data.Options()
        options.autotune.enabled = False
        # Nothing is read ahead, as the loop counts the samples of the batch that was read last.
        options.experimental_optimization.inject_prefetch = False
        found = tf.data.Dataset.from_generator(self._told, output_signature=get_tensor_spec(self._few))
        return found.with_options(options)

    @property
    def first(self) -> Any:
        """Return one batch, from whose shapes and types a model can be built."""
        return self._few[0]

    @cached_property
    def _few(self) -> list[Any]:
        return list(itertools.islice(self._arrays(), NUM_BATCHES_FOR_TENSOR_SPEC))

    def guarded(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap a step of Keras so that errors of the user's data code are raised unchanged, not as TensorFlow's."""

        def guarded(iterator: Any) -> Any:
            try:
                return step(iterator)
            except Exception:
                if self._error is not None:
                    raise self._error from None
                raise

        return guarded

    def _told(self) -> Iterator[Any]:
        try:
            yield from self._arrays()
        except Exception as error:
            self._error = error
            raise

    def _arrays(self) -> Iterator[Any]:
        for batch in self._batches():
            yield tree.map_structure(lambda each: each.numpy() if isinstance(each, Tensor) else each, batch)

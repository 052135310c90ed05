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


def draw_apart(seed: int, rank: int) -> None:
    """Seed TensorFlow's global generator by rank, once all ranks have made the same model and data."""
    import tensorflow as tf

    if rank:
        tf.random.set_seed(seeds.mix(seed, "steps", "tensorflow", rank) % 2**31)


class Feed:
    """Batches of torch tensors as a `tf.data.Dataset`; each batch is read before the step that trains on it."""

    def __init__(self, batches: Callable[[], Iterator[Any]]) -> None:
        """Create the feed; `batches` returns an iterator over the batches of one pass over the data."""
        self._batches = batches
        self._pass: Iterator[Any] = iter(())
        self._batch: Any = None  # what the next step gets

    def read(self) -> None:
        """Read the next batch, after the last one of a pass the first of another, for the step that follows.

        It is read in this thread, where its errors are those of the user's data, and not TensorFlow's.
        """
        try:
            self._batch = next(self._pass)
        except StopIteration:
            self._pass = self._arrays()
            self._batch = next(self._pass)

    def dataset(self) -> Any:
        """Return the dataset, whose next element is always the batch that was read last."""
        import tensorflow as tf

        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.inject_prefetch = False  # so that no batch is taken before it is read
        found = tf.data.Dataset.from_generator(self._read_last, output_signature=get_tensor_spec(self._few))
        return found.with_options(options)

    @property
    def first(self) -> Any:
        """Return one batch, from whose shapes and types a model can be built."""
        return self._few[0]

    @cached_property
    def _few(self) -> list[Any]:
        return list(itertools.islice(self._arrays(), NUM_BATCHES_FOR_TENSOR_SPEC))

    def _read_last(self) -> Iterator[Any]:
        while True:
            yield self._batch

    def _arrays(self) -> Iterator[Any]:
        for batch in self._batches():
            yield tree.map_structure(lambda each: each.numpy() if isinstance(each, Tensor) else each, batch)

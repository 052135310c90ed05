"""Give Keras' `fit` this rank's shares of the batches, from the batch on at which the training resumes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from keras.src import tree  # Keras has no public name for these four
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter, can_convert_arrays
from keras.src.trainers.data_adapters.array_slicing import convert_to_sliceable
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.utils import PyDataset
from torch.utils.data import TensorDataset

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.data import Batch, Batches, Source, source
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.forms.keras.values import on_torch
from kernel_backend.runner.loop.forward import to_device

if TYPE_CHECKING:
    from kernel_backend.runner.forms.keras.tensorflow import Feed

SKIPPED = object()  # marker for a batch that an earlier attempt has trained


class Data(NamedTuple):
    """Samples of a data set, with a rule by which a batch of them becomes the tuple that Keras expects."""

    source: Source
    like: Any = None  # for arrays: their structure, with None for each; otherwise batches are passed as read

    def batch(self, data: Any) -> Any:
        """Return a batch as the tuple that Keras expects: (x,), (x, y) or (x, y, sample_weight)."""
        if self.like is not None:
            return tree.pack_sequence_as(self.like, list(data))
        return tuple(data) if isinstance(data, list) else data


def data_of(value: Any, role: str, shuffle: bool = True) -> Data:
    """Return the samples of the data that the user's function `role` returned.

    The data may be arrays x, (x, y) or (x, y, sample_weight), or a torch Dataset or DataLoader. Without `shuffle` the
    order of arrays is kept. Raises InvalidDefinition for anything else.
    """
    arrays = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not isinstance(value, PyDataset) and len(arrays) <= 3 and can_convert_arrays(arrays):
        data = _of_arrays(arrays, role)
        order = None if shuffle else range(len(data.source.dataset))
        return data._replace(source=data.source._replace(sampler=order))
    if isinstance(value, PyDataset) or not hasattr(value, "__len__"):
        raise InvalidDefinition(
            f"{role} is a {type(value).__name__}, whose samples have no index, so that they cannot be shared out to "
            "slots, and a restart could not go to one: give arrays (x, y), or a torch Dataset or DataLoader"
        )
    found = source(value, role)
    if found.stream:
        raise InvalidDefinition(
            f"{role} is a {type(value).__name__}, whose samples have no index: give arrays (x, y), or a Dataset with "
            "__getitem__ and __len__"
        )
    return Data(found)


def _of_arrays(arrays: tuple[Any, ...], role: str) -> Data:
    try:
        adapter = ArrayDataAdapter(*arrays)
    except ValueError as error:
        raise InvalidDefinition(f"{role}: {error}") from None
    sliced = tree.map_structure(_tensor, convert_to_sliceable(adapter._inputs, target_backend="torch"))
    like = tree.map_structure(lambda each: 0, sliced)
    return Data(source(TensorDataset(*tree.flatten(sliced)), role), like)


def _tensor(sliced: Any) -> torch.Tensor:
    """Return all samples of an array that Keras has wrapped, as a tensor of the dtype that Keras feeds the model."""
    found = sliced.convert_to_torch_compatible(sliced[0:])
    return torch.as_tensor(found)


class Shares(DataAdapter):  # type: ignore[misc]
    """Data set as an adapter that Keras' `fit` accepts: it yields this rank's share of each batch."""

    def __init__(self, rank: RankContext, data: Data, *, training: bool) -> None:
        """Set up the batches; with `training` they are shuffled, else they keep the data's order."""
        found, config = data.source, rank.config
        if training and config.uneven == "drop":
            found = found._replace(drop_last=True)
        own = range(rank.ranks.rank, rank.ranks.rank + 1)
        self._data, self._device = data, rank.device
        self._size = (found.batch_size or config.batch_size) * (rank.ranks.size if config.per_slot_batch else 1)
        self._batches = Batches(
            found._replace(batch_size=None),
            self._size,
            config.seed,
            "sample" if training else "validation",
            own,
            rank.ranks.size,
            rank.loader_workers,
            rank.device,
            rank.note,
            digested=training,
            filled=True,
            limit=rank.limit_guarantee,
        )
        self._training = training
        self.epoch, self.taken = 0, 0  # the start of the next pass
        self.batch: Batch | None = None  # the batch that Keras currently has

    def get_torch_dataloader(self) -> Iterator[Any]:
        """Return an iterator over one pass on the torch backend: this rank's shares of the batches of an epoch.

        In place of each batch that an earlier attempt has trained, it yields the marker SKIPPED.
        """
        return itertools.chain(itertools.repeat(SKIPPED, self.taken), self._pass())

    def get_tf_dataset(self) -> Any:
        """Return this rank's shares on TensorFlow as a `tf.data.Dataset`, each of which must be `read` before."""
        return self.feed.dataset()

    def read(self) -> None:
        """Read this rank's share of the batch of the step that begins; Keras on torch has it already."""
        if not on_torch():
            self.feed.read()

    @cached_property
    def feed(self) -> Feed:
        """Return the object from which TensorFlow reads the batches."""
        from kernel_backend.runner.forms.keras.tensorflow import Feed

        return Feed(self._pass)

    def _pass(self) -> Iterator[Any]:
        batches = self._batches
        if self._training:
            first = self.epoch * self.count
            steps = batches.steps(first + self.taken, first + self.count)
            steps = RandomStates().isolated(steps) if batches.disturbs else steps
        else:
            steps = batches.in_order()
        for (self.batch,) in steps:
            yield self._data.batch(to_device(self.batch.data, self._device))

    @property
    def count(self) -> int:
        """Return the number of batches in a pass over the data set."""
        assert self._batches.per_epoch is not None
        return self._batches.per_epoch

    @property
    def samples(self) -> tuple[int, int]:
        """Return the numbers of samples in the current batch: those of this rank, and those of all ranks."""
        assert self.batch is not None
        return self._batches.own_samples(self.batch.total), self.batch.total

    num_batches = count

    @property
    def batch_size(self) -> int:
        """Return the global batch size."""
        return self._size

    has_partial_batch = None
    partial_batch_size = None

    def close(self) -> None:
        """Stop the processes that read data."""
        self._batches.close()

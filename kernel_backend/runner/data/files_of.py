"""Find the files from which a dataset reads each of its samples, where the dataset holds a list of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from torch.utils.data import ConcatDataset, Subset

Files = Callable[[int], list[str]]  # returns the paths of the files of a sample, given its index


def files_of(dataset: Any, is_file: Callable[[str], bool]) -> Files | None:
    """Return a function that returns the paths of the files of a sample, given its index; None if they are not known.

    They are looked for in the attributes of the dataset: a sequence with an entry for each sample that is, or has in
    it, a path for which `is_file` returns True, as it is or below a folder that another attribute names. What is found
    may be wrong: it must only be used to read in advance.
    """
    if type(dataset) is Subset:
        return _of_part(dataset, files_of(dataset.dataset, is_file))
    if type(dataset) is ConcatDataset:
        return _of_all(dataset, [files_of(each, is_file) for each in dataset.datasets])
    held = dataset.__dict__.values() if hasattr(dataset, "__dict__") else ()
    lists = [each for each in (dataset, *held) if isinstance(each, list | tuple) and len(each) == len(dataset) > 0]
    folders = ["", *(os.fsdecode(each) for each in held if isinstance(each, str | os.PathLike))]
    for samples in lists:
        for folder in folders:
            if any(is_file(os.path.join(folder, name)) for name in _names(samples[0])):
                return lambda index, samples=samples, folder=folder: [  # type: ignore[misc]
                    os.path.join(folder, name) for name in _names(samples[index])
                ]
    return None


def _of_part(dataset: Subset[Any], whole: Files | None) -> Files | None:
    return None if whole is None else lambda index: whole(int(dataset.indices[index]))


def _of_all(dataset: ConcatDataset[Any], parts: Sequence[Files | None]) -> Files | None:
    if not any(parts):
        return None
    ends = dataset.cumulative_sizes

    def files(index: int) -> list[str]:
        number = next(number for number, end in enumerate(ends) if index < end)
        part = parts[number]
        return part(index - (ends[number - 1] if number else 0)) if part else []

    return files


def _names(sample: Any) -> list[str]:
    """Return the paths, absolute or not, in an entry of a list of samples."""
    if isinstance(sample, str | os.PathLike):
        return [os.fsdecode(sample)]
    if isinstance(sample, dict):
        sample = tuple(sample.values())
    return list(chain.from_iterable(map(_names, sample))) if isinstance(sample, tuple | list) else []

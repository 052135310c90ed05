"""Test how the files of a dataset's samples are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from kernel_backend.runner.data.files_of import files_of

ROOT = "/data/train"


class Samples(Dataset[Any]):
    """Dataset that holds lists, as users and torchvision write them."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("no sample is read")


def found(dataset: Any) -> list[list[str]] | None:
    files = files_of(dataset, lambda path: path.startswith(ROOT))
    return None if files is None else [files(index) for index in range(len(dataset))]


NAMES = ["a/0.jpg", "a/1.jpg", "b/2.jpg"]
PATHS = [f"{ROOT}/{name}" for name in NAMES]
EACH = [[path] for path in PATHS]


def test_lists_of_paths_of_names_below_a_folder_and_of_tuples_are_found() -> None:
    assert found(Samples(paths=PATHS)) == EACH
    assert found(Samples(classes=["a", "b", "c"], samples=[(path, 0) for path in PATHS])) == EACH
    assert found(Samples(root=Path(ROOT), names=tuple(NAMES), labels=[0, 1, 2])) == EACH
    assert found(Samples(rows=[{"image": path, "mask": Path(f"{path}.png")} for path in PATHS])) == [
        [path, f"{path}.png"] for path in PATHS
    ]


def test_parts_and_joined_datasets_are_those_of_their_own() -> None:
    whole, tensors = Samples(paths=PATHS), TensorDataset(torch.zeros(2))
    assert found(Subset(whole, [2, 0])) == [[PATHS[2]], [PATHS[0]]]
    assert found(ConcatDataset([tensors, whole])) == [[], [], *EACH]


def test_other_datasets_have_none() -> None:
    assert found(TensorDataset(torch.zeros(3))) is None
    assert found(ConcatDataset([TensorDataset(torch.zeros(3))])) is None
    assert found(Samples(paths=[f"/elsewhere/{name}" for name in NAMES])) is None
    assert found(Samples(paths=PATHS[:2])) is None  # not one for each sample
    assert found([1.0, 2.0, 3.0]) is None

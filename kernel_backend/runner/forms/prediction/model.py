"""Load, in a rank of a prediction, the trained model from the trial's own copy, and its code from the snapshot."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernel_backend.checkpoints.base import Manifest, Part
from kernel_backend.checkpoints.storage import open_storage
from kernel_backend.definition.contract import Definition
from kernel_backend.definition.parse import parse_snapshot
from kernel_backend.errors import InvalidDefinition, NotFound
from kernel_backend.model import versions
from kernel_backend.model.snapshot import DEFINITION, DESCRIPTION, Snapshot
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.definition.functions import Functions
from kernel_backend.runner.definition.load import Loaded as DefinitionModule
from kernel_backend.runner.forms.prediction.rows import Rows, open_rows
from kernel_backend.snapshots.loaded import TRAVELLED, module_name, take_travelled
from kernel_backend.trained.keras_weights import choose_backend
from kernel_backend.trained.load import Loaded, load_checkpoint, with_module

_ROLES = ("train_data", "validation_data", "test_data")


class TrainedModel:
    """Model of another trial, whose checkpoint was copied to this one, and whose code is in this one's snapshot."""

    def __init__(self, rank: RankContext) -> None:
        """Find the copy; raise NotFound if it was deleted."""
        job = rank.job
        self._storage, self._code, self._device = open_storage(job.checkpoints, job.uid), Path(job.code), rank.device
        found = next((each for each in self._storage.committed() if each.origin), None)
        if found is None:
            raise NotFound(
                f"the copy of the model in {self._storage.where} was deleted: submit the {rank.config.form} again"
            )
        # Inputs of the training are at other places on this node.
        places = {name: place for name, place in job.inputs.items() if name in found.params}
        self.manifest = found.model_copy(update={"params": found.params | places})
        self.number = found.experiment

    def load(self) -> Loaded:
        """Return the model with its weights, in evaluation mode on the device."""
        loaded = with_module(self, load_checkpoint(self, self.manifest))
        models: Any = loaded.models
        if isinstance(models, dict) and all(isinstance(each, torch.nn.Module) for each in models.values()):
            models = torch.nn.ModuleDict(models)
        if not callable(models):
            raise InvalidDefinition(f"{loaded.name} of the training cannot be made here as a module: export it instead")
        if isinstance(models, torch.nn.Module):
            models = models.to(self._device).eval()
        return loaded._replace(models=models)

    @property
    def amp(self) -> str | None:
        """Return the mixed precision of the training, `bf16` or `fp16`; None without `--amp`."""
        return self.manifest.numerics.get("amp")

    @property
    def form(self) -> str:
        """Return the form of the training, such as `functions`."""
        return self._definition.form

    @cached_property
    def _definition(self) -> Definition:
        return parse_snapshot(*self.source())

    @cached_property
    def functions(self) -> Functions:
        """Return the functions of the training, with its hyperparameters."""
        loaded = DefinitionModule(self.code(), self._definition, self.source()[1])
        return Functions(loaded, self.manifest.params, self.manifest.seed, {"rank": 0, "world": 1})

    def rows(self, functions: Functions, role: str) -> Rows:
        """Open the rows that the cell's function `role` returns: data, the path of a file, or a role of the training.

        `functions` are those of the cell. Raises InvalidDefinition for data without numbered rows.
        """
        data = functions.prepared(role, frozenset())()
        if not isinstance(data, str) or data not in _ROLES or Path(data).exists():
            return open_rows(data, role=role)
        if not self.functions.has(data):
            raise InvalidDefinition(f"the training has no {data}: name a file, or write {role}()")
        return open_rows(self.functions.result(data), self.functions.collate(), role=data)

    # What `load_checkpoint` reads

    def pieces(self, manifest: Manifest, part: Part) -> Iterator[bytes | memoryview]:
        """Yield the bytes of a part of the copied checkpoint."""
        return self._storage.pieces(manifest, part.name)

    def source(self) -> tuple[str, Snapshot]:
        """Return the training definition and the description of its snapshot."""
        folder = self._code / TRAVELLED / module_name(self.manifest.snapshot)
        description = versions.read(Snapshot, (folder / DESCRIPTION).read_bytes())
        return (folder / DEFINITION).read_text(encoding="utf-8"), description

    def code(self) -> ModuleType:
        """Return the training definition as a module, executed once without its training."""
        if self._definition.keras_backend is not None:
            choose_backend(self._definition.keras_backend)
        take_travelled(self._code)
        name = f"{take_travelled.__module__}.{module_name(self.manifest.snapshot)}"
        return importlib.import_module(name)

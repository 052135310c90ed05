"""Serve the model of this folder with MLflow: `mlflow models serve -m FOLDER --env-manager local`.

Inputs are an array, a table whose columns are the model's inputs, or arrays by the name of an argument. They become
tensors of the types that the training's batches had.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import mlflow
import numpy as np

FOLDER = Path(__file__).resolve().parent


def _module(name: str) -> ModuleType:
    spec: Any = importlib.util.spec_from_file_location(f"exported_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ExportedModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """Model of this folder, as MLflow calls it."""

    def load_context(self, context: Any) -> None:
        """Load the model; MLflow calls it once."""
        self._check = _module("check")
        self._model = _module("model").load(FOLDER)
        call = self._check.recorded(FOLDER)[0]
        self._path, self._args, self._kwargs = call["path"], call["args"], call["kwargs"]

    def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
        """Return the outputs as an array, or arrays by name where there are several."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        if isinstance(model_input, dict):
            kwargs = {name: self._tensor(each, self._kwargs.get(name)) for name, each in model_input.items()}
        elif self._args:
            args = [self._tensor(_array(model_input), self._args[0])]
        else:
            name, example = next(iter(self._kwargs.items()))
            kwargs = {name: self._tensor(_array(model_input), example)}
        found = self._check.outputs(self._model, self._path, args, kwargs)
        arrays = {name: np.asarray(each) for name, each in found.items()}
        return next(iter(arrays.values())) if len(arrays) == 1 else arrays

    def _tensor(self, value: Any, example: Any) -> Any:
        """Return a value as the model takes it, of the type and shape of an example."""
        array = np.ascontiguousarray(value)
        if example is None or isinstance(example, np.ndarray):
            return array if example is None else array.astype(example.dtype).reshape(-1, *example.shape[1:])
        import torch

        return torch.from_numpy(array).to(example.dtype).reshape(-1, *example.shape[1:])


def _array(value: Any) -> Any:
    return value.to_numpy() if hasattr(value, "to_numpy") else value


mlflow.models.set_model(ExportedModel())

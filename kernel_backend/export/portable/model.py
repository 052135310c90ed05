"""Load the trained model of this folder: `from model import load; model = load()`.

It needs torch (or keras) and safetensors, and the packages of requirements.lock that the model's own code imports.
Nothing is unpickled. `structure.json` says how the model is put together: of which classes, with which attributes, and
where in `model.safetensors` its weights are.
"""

from __future__ import annotations

import base64
import functools
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).resolve().parent
CODE = "code"  # folder of the project's modules that the model needs


def load(folder: str | Path = FOLDER) -> Any:
    """Return the model with its trained weights, in evaluation mode, on the CPU.

    Parameters
    ----------
    folder : str or Path
        Folder of the exported model; by default that of this file.

    Returns
    -------
    torch.nn.Module or keras.Model
        The model.
    """
    folder = Path(folder)
    structure = json.loads((folder / "structure.json").read_text(encoding="utf-8"))
    if structure["made"] == "keras":
        return _keras(folder, structure)
    import safetensors.torch

    if structure["made"] == "pretrained":
        model = _named(structure["class"], folder).from_pretrained(folder)
    elif structure["made"] == "call":
        arguments = structure["arguments"]
        model = _named(structure["function"], folder)(**arguments)
        if isinstance(model, dict):
            model = importlib.import_module("torch").nn.ModuleDict(model)
        safetensors.torch.load_model(model, folder / "model.safetensors")
    else:
        tensors = _tensors(folder / "model.safetensors")
        if (folder / "structure.safetensors").exists():
            tensors |= _tensors(folder / "structure.safetensors")
        model = _Reader(folder, tensors).read(structure["module"])
    return model.eval()


def _keras(folder: Path, structure: dict[str, Any]) -> Any:
    import os

    os.environ.setdefault("KERAS_BACKEND", structure["backend"])
    import keras

    own = {name.partition(":")[2]: _named(name, folder) for name in structure["own"]}
    with keras.saving.custom_object_scope(own):
        return keras.saving.load_model(folder / "model.keras")


def _tensors(path: Path) -> dict[str, Any]:
    """Return the tensors of a file; tied ones are stored once, and the file's metadata has their other names."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        others = file.metadata() or {}
    return found | {other: found[name] for other, name in others.items() if name in found}


def definition(folder: str | Path = FOLDER) -> ModuleType:
    """Return the module `definition.py` of the folder: the classes and functions that the model needs."""
    folder = Path(folder)
    name = f"definition_of_{abs(hash(str(folder)))}"
    if name not in sys.modules:
        _reach_code(folder)
        spec: Any = importlib.util.spec_from_file_location(name, folder / "definition.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _reach_code(folder: Path) -> None:
    """Make the project's modules in the folder importable."""
    if (folder / CODE).is_dir() and str(folder / CODE) not in sys.path:
        sys.path.insert(0, str(folder / CODE))


def _named(name: str, folder: Path) -> Any:
    """Return a class or function by its name, `module:qualified.name`; the module `definition` is the folder's."""
    module, _, path = name.partition(":")
    _reach_code(folder)
    found = definition(folder) if module == "definition" else importlib.import_module(module)
    return functools.reduce(getattr, path.split("."), found)


class _Reader:
    """Reader of one structure: makes its objects in the order in which they are written."""

    def __init__(self, folder: Path, tensors: dict[str, Any]) -> None:
        self._folder, self._tensors = folder, tensors
        self._objects: dict[int, Any] = {}
        self._parameters: dict[str, Any] = {}

    def read(self, node: Any) -> Any:
        """Return the value that a node of the structure describes."""
        if isinstance(node, list):
            return [self.read(each) for each in node]
        if not isinstance(node, dict):
            return node
        (kind, content), *rest = node.items()
        if kind == "module":
            return self._module(content, **dict(rest))
        if kind == "object":
            return self._object(content, **dict(rest))
        return self._value(kind, content, dict(rest))

    def _value(self, kind: str, content: Any, more: dict[str, Any]) -> Any:
        torch = importlib.import_module("torch")
        match kind:
            case "float":
                return float(content)
            case "bytes":
                return base64.b64decode(content)
            case "tuple":
                return tuple(self.read(content))
            case "set":
                return set(self.read(content))
            case "frozenset":
                return frozenset(self.read(content))
            case "dict":
                return {self.read(key): self.read(value) for key, value in content}
            case "tensor":
                return self._tensors[content].requires_grad_(more.get("requires_grad", False))
            case "array":
                return self._tensors[content].numpy()
            case "parameter":
                if content not in self._parameters:
                    self._parameters[content] = torch.nn.Parameter(self._tensors[content], more["requires_grad"])
                return self._parameters[content]
            case "torch":
                return getattr(torch, content)
            case "device":
                return torch.device(content)
            case "size":
                return torch.Size(content)
            case "name":
                return _named(content, self._folder)
            case "enum":
                return _named(content, self._folder)[more["member"]]
            case "partial":
                function, args, kwargs = self.read(content)
                return functools.partial(function, *args, **kwargs)
            case "method":
                return getattr(self.read(more["of"]), content)
            case "ref":
                return self._objects[content]
        raise ValueError(f"structure.json has {kind}, which this file does not know")

    def _module(
        self, content: str, id: int, state: dict[str, Any], computed: list[str] | None = None, **tensors: dict[str, Any]
    ) -> Any:
        """Return a torch module of a class, without a call of its `__init__`.

        Parametrizations compute the tensors `computed`.
        """
        torch = importlib.import_module("torch")
        kind = _named(content, self._folder)
        self._objects[id] = module = kind.__new__(kind)
        if computed:
            parametrize = importlib.import_module("torch.nn.utils.parametrize")
            parametrize._inject_new_class(module)
            for name in computed:
                parametrize._inject_property(module, name)
        whole = dict(vars(torch.nn.Module()))
        whole |= {key: self.read(value) for key, value in state.items()}
        for kind in ("parameters", "buffers", "modules"):
            whole[f"_{kind}"] = {name: self.read(each) for name, each in tensors.get(kind, {}).items()}
        module.__setstate__(whole)
        return module

    def _object(self, content: str, id: int, **parts: Any) -> Any:
        """Return an object of a class, as `copy.copy` would make it from its parts."""
        kind = _named(content, self._folder)
        args = self.read(parts.get("args", []))
        self._objects[id] = made = kind(*args) if parts.get("call") else kind.__new__(kind, *args)
        if "state" in parts:
            state = self.read(parts["state"])
            if hasattr(made, "__setstate__"):
                made.__setstate__(state)
            else:
                plain, slots = state if isinstance(state, tuple) else (state, None)
                vars(made).update(plain or {})
                for name, value in (slots or {}).items():
                    setattr(made, name, value)
        if "items" in parts:
            made.extend(self.read(parts["items"]))
        for key, value in parts.get("pairs", []):
            made[self.read(key)] = self.read(value)
        return made

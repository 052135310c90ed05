"""Export a trained model as a folder that needs no Daylight: weights, structure, code, a card and a proof."""

from __future__ import annotations

import ast
import copy
import io
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path, PurePosixPath
from types import FunctionType
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file, save_model
from torch import Tensor, nn

from kernel_backend.client import Client
from kernel_backend.definition.script.parts import PART
from kernel_backend.definition.unused import names_used
from kernel_backend.errors import InvalidRequest
from kernel_backend.export.card import Origin, card, lineage, mlmodel, requirements
from kernel_backend.export.code import VALUES, needed_code
from kernel_backend.export.examples import Call, calls_of, keras_calls
from kernel_backend.export.formats import check_formats, write_formats
from kernel_backend.export.proof import NotProven, Proof, prove
from kernel_backend.export.structure import DEFINITION, NotDescribed, Structure
from kernel_backend.model.snapshot import EDITABLE, PROJECT, Project
from kernel_backend.model.values import listed
from kernel_backend.model.views.overview import CheckpointInfo
from kernel_backend.snapshots import archive
from kernel_backend.snapshots.keras_models import described
from kernel_backend.trained.fetch import OfService
from kernel_backend.trained.load import Loaded, load, with_module
from kernel_backend.trained.new_folder import new_folder

MARK = "daylight.json"  # a folder with this file is an earlier export, and may be replaced
_PORTABLE = Path(__file__).parent / "portable"
_CODE = "code"  # folder of the project's modules
_OF_TRAINING = ("labels", "num_items_in_batch")  # arguments that make a model of transformers compute a loss
_LOAD = "from model import load\n\nmodel = load()  # a torch.nn.Module in evaluation mode"


class Exported(NamedTuple):
    """Exported model: its folder, how it was proven, its size in bytes, and what a user should know besides."""

    folder: Path
    proof: str
    bytes: int
    notes: tuple[str, ...] = ()


class Way(NamedTuple):
    """Way in which an exported model is made again: the content of structure.json, and the names of its code."""

    structure: dict[str, Any]
    names: set[str]
    tensors: Mapping[str, Tensor] = {}
    lambdas: Mapping[str, str] = {}  # sources of functions without a name, which go below the definition


def export_model(
    client: Client,
    number: int,
    choices: Sequence[CheckpointInfo],
    to: Path,
    *,
    module: str = "auto",
    formats: Sequence[str] = (),
    force: bool = False,
) -> Exported:
    """Export the model of an experiment into the new folder `to`, which appears whole and proven, or not at all.

    Parameters
    ----------
    client : Client
        Client of the service.
    number : int
        Number of the experiment.
    choices : sequence of CheckpointInfo
        Checkpoints of one trial in order of preference; a damaged one is skipped.
    to : Path
        The folder, which must not exist.
    module : str, default "auto"
        Variable of a program that trains several modules; or ``model`` or ``ema``.
    formats : sequence of str
        Programs for other runtimes beside it: ``pt2``, ``onnx``.
    force : bool, default False
        Replace an earlier export in `to`.

    Raises
    ------
    InvalidRequest
        The folder exists or cannot be written, the experiment's model cannot be made here, or the exported folder does
        not compute in a fresh process what the model computes here.
    """
    check_formats(formats)
    with new_folder(to, MARK, force) as folder:
        found = _Export(client, number, _loaded(client, number, choices, module), formats).write(folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Exported(to.expanduser().absolute(), found.proof.text, size, tuple(found.notes))


def _loaded(client: Client, number: int, choices: Sequence[CheckpointInfo], module: str) -> Loaded:
    """Load a module of a checkpoint, or a part of one by its path: `model.encoder`."""
    try:
        return with_module(OfService(client, number), load(client, number, choices, module))
    except InvalidRequest:
        name, _, part = module.rpartition(".")
        if not name:
            raise
        whole = _loaded(client, number, choices, name)
    models: Any = whole.models
    found = models.get(part) if isinstance(models, dict) else getattr(models, part, None)
    if not isinstance(found, nn.Module):
        raise InvalidRequest(f"{name} has no module {part}")
    return whole._replace(models=found, name=module)


class _Export:
    """One export: what was loaded, and what is written of it."""

    def __init__(self, client: Client, number: int, loaded: Loaded, formats: Sequence[str]) -> None:
        self._loaded, self._formats = loaded, formats
        self._source, snapshot = client.source(number)
        experiment = client.experiment(number).experiment
        self._origin = Origin(experiment, loaded.manifest, snapshot, loaded.name)
        self._project = _modules_of(client.archive(number), snapshot.project)
        self._signatures = _signatures(loaded)
        self.notes: list[str] = []
        self.proof: Proof
        self._library = "pytorch"

    def write(self, folder: Path) -> _Export:
        """Write the folder and prove it, in the first way that can be proven; raise InvalidRequest if none can."""
        problems = []
        for write in self._ways():
            try:
                self._write(folder, write)
            except (NotDescribed, NotProven) as problem:
                problems.append(problem.message)
                for path in folder.iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            else:
                return self
        raise InvalidRequest(f"the model cannot be exported: {'; or '.join(dict.fromkeys(problems))}")

    def _ways(self) -> Iterator[Callable[[Path], Way]]:
        model = self._loaded.models
        if _is_keras(model):
            yield self._keras
            return
        if isinstance(model, dict) and model and all(isinstance(each, nn.Module) for each in model.values()):
            model = nn.ModuleDict(model)
        if not isinstance(model, nn.Module):
            others = [name for name in self._signatures if "." not in name and name != self._loaded.name]
            also = f"; there are also {listed(others, 6)}: name one with --module" if others else ""
            raise InvalidRequest(f"{self._loaded.name} of this experiment cannot be made here as a module{also}")
        self._model = model
        if _is_peft(model):
            yield self._adapter
        elif _is_pretrained(model):
            yield self._pretrained
        elif self._loaded.name == "model" and isinstance(self._maker, FunctionType):
            yield self._called
        yield self._described

    @property
    def _maker(self) -> Any:
        return getattr(self._loaded.definitions, "model", None)

    def _write(self, folder: Path, write: Callable[[Path], Way]) -> None:
        (folder / "config.json").write_text(_json(self._loaded.manifest.params))
        way = write(folder)
        (folder / "structure.json").write_text(_json(way.structure))
        if way.tensors:
            save_file(_plain(way.tensors), folder / "structure.safetensors")
        self._write_code(folder, way.names, way.lambdas)
        for name in ("model.py", "check.py", "mlflow_model.py"):
            shutil.copyfile(_PORTABLE / name, folder / name)
        if _is_keras(self._loaded.models):
            if self._formats:
                raise InvalidRequest("models of Keras are exported in the format of Keras: leave --format out")
            calls = keras_calls(self._loaded.models)
        else:
            calls = self._calls()
            write_formats(self._model, calls, folder, self._formats)
        _write_expected(folder / "expected.safetensors", calls)
        self.proof = prove(folder)
        self._remove_unused(folder)
        self._describe(folder)

    def _calls(self) -> list[Call]:
        of_training = _OF_TRAINING if _is_pretrained(self._model) else ()
        return calls_of(self._model, self._loaded.name, self._signatures, of_training)

    def _called(self, folder: Path) -> Way:
        """Write weights for a model that a function `model` of the definition makes from hyperparameters alone."""
        code = self._maker.__code__
        taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        params = {name: value for name, value in self._loaded.manifest.params.items() if name in taken}
        save_model(self._model, str(folder / "model.safetensors"))
        structure = {"made": "call", "function": f"{DEFINITION}:model", "arguments": params}
        return Way(structure, {f"{DEFINITION}:model"})

    def _described(self, folder: Path) -> Way:
        """Write weights, and how the model is put together."""
        self._calls()  # what a module keeps of its last batch is then of a synthetic one
        found = Structure(self._model, self._loaded.definitions)
        save_model(self._model, str(folder / "model.safetensors"))
        return Way({"made": "structure", "module": found.json}, found.names, found.tensors, found.lambdas)

    def _pretrained(self, folder: Path) -> Way:
        """Write a model of transformers in its own format."""
        self._library = "transformers"
        self._model.save_pretrained(folder)  # type: ignore[operator]
        kind = type(self._model)
        own = kind.__module__ in ("__main__", getattr(self._loaded.definitions, "__name__", None))
        name = f"{DEFINITION if own else kind.__module__}:{kind.__qualname__}"
        return Way({"made": "pretrained", "class": name}, {name})

    def _adapter(self, folder: Path) -> Way:
        """Write a LoRA model twice: merged into one plain model, and the adapter alone."""
        whole: Any = self._model
        whole.save_pretrained(folder / "adapter")
        (folder / "adapter" / "README.md").unlink(missing_ok=True)  # a form to be filled in
        self._model = copy.deepcopy(whole).merge_and_unload().eval()
        self.notes.append("the adapter was merged into the model; alone it is in adapter/")
        return self._pretrained(folder) if _is_pretrained(self._model) else self._described(folder)

    def _keras(self, folder: Path) -> Way:
        """Write a model of Keras in its own format."""
        import keras

        self._library = "keras"
        model: Any = self._loaded.models
        if not model.inputs:  # of a class: how it is called follows from its first batch
            model.build_from_config(self._loaded.manifest.state["training"]["form"]["build"])
        model.save(folder / "model.keras")
        text, code = described(model), vars(self._loaded.definitions).items()
        own = {name for name, each in code if f'"{name}"' in text and isinstance(each, type | FunctionType)}
        names = {f"{DEFINITION}:{name}" for name in own}
        return Way({"made": "keras", "backend": keras.backend.backend(), "own": sorted(names)}, names)

    def _write_code(self, folder: Path, names: set[str], lambdas: Mapping[str, str]) -> None:
        """Write definition.py, and all modules of the project; those that are not imported are removed later."""
        own = {name.partition(":")[2].partition(".")[0] for name in names if name.startswith(f"{DEFINITION}:")}
        below = "".join(f"{name} = {source}\n" for name, source in lambdas.items())
        own |= names_used(ast.parse(below))
        if own or below:
            code = needed_code(self._source, own, vars(self._loaded.definitions))
            (folder / "definition.py").write_text(code.source + below)
            if code.tensors:
                save_file(_plain({name: torch.as_tensor(each) for name, each in code.tensors.items()}), folder / VALUES)
        for path, data in self._project.items():
            (folder / _CODE / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / _CODE / path).write_bytes(data)

    def _remove_unused(self, folder: Path) -> None:
        used = {folder / path for path in self.proof.files}
        for path in sorted((folder / _CODE).rglob("*"), reverse=True):
            if path.is_file() and path not in used:
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        if (folder / _CODE).is_dir() and not any((folder / _CODE).iterdir()):
            (folder / _CODE).rmdir()

    def _describe(self, folder: Path) -> None:
        installed = {each.metadata["Name"]: each.version for each in distributions()}
        lock = requirements(self.proof.distributions, self._origin.snapshot, installed)
        (folder / "requirements.lock").write_text(lock)
        (folder / MARK).write_text(_json(lineage(self._origin, self.proof.text)))
        (folder / "MLmodel").write_text(mlmodel(self._origin))
        (folder / "python_env.yaml").write_text(
            f"python: {self._origin.snapshot.environment.python}\ndependencies: [-r requirements.lock, mlflow-skinny]\n"
        )
        present = [path.name for path in folder.iterdir()]
        (folder / "README.md").write_text(card(self._origin, self.proof.text, self._library, present, _LOAD))


def _signatures(loaded: Loaded) -> dict[str, Any]:
    """Return the signatures of a checkpoint, with those of the model by its name.

    They have the name that it had at the first checkpoint: a variable of a function, which may since have returned.
    """
    found: dict[str, Any] = loaded.manifest.state.get("training", {}).get("signatures", {})
    short = loaded.name.rpartition(".")[2]
    if loaded.name == short or loaded.name in found or short in loaded.manifest.state.get(PART, {}):
        return found
    return found | {loaded.name: found[short]} if short in found else found


def _modules_of(data: bytes, project: Project | None) -> dict[str, bytes]:
    """Return the Python files of a snapshot's project by the paths under which they are imported."""
    archive.check(data)
    roots = [PurePosixPath(PROJECT, path) for path in project.paths] if project else []
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as members:
        names = [PurePosixPath(name) for name in members.namelist() if name.endswith(".py")]
        roots += sorted({PurePosixPath(*each.parts[:2]) for each in names if each.parts[0] == EDITABLE})
        for root in roots:
            for each in names:
                if each.is_relative_to(root):
                    found.setdefault(str(each.relative_to(root)), members.read(str(each)))
    return found


def _write_expected(path: Path, calls: Sequence[Call]) -> None:
    """Write inputs and outputs of calls as tensors; the file's metadata says which is which."""
    tensors: dict[str, Tensor] = {}

    def noted(value: Any) -> Any:
        if isinstance(value, Tensor):
            name = f"{len(tensors):04}"
            tensors[name] = value
            return {"$tensor": name}
        if isinstance(value, tuple):
            return {"$tuple": [noted(each) for each in value]}
        if isinstance(value, list):
            return [noted(each) for each in value]
        return {key: noted(each) for key, each in value.items()} if isinstance(value, dict) else value

    found = [{key: noted(value) for key, value in call._asdict().items()} for call in calls]
    save_file(_plain(tensors), path, metadata={"calls": json.dumps(found)})


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: each.detach().cpu().contiguous().clone() for name, each in tensors.items()}


def _json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"


def _is_keras(model: Any) -> bool:
    return any(each.__module__.startswith("keras.") and each.__name__ == "Model" for each in type(model).__mro__)


def _is_pretrained(model: Any) -> bool:
    return any(each.__name__ == "PreTrainedModel" for each in type(model).__mro__)


def _is_peft(model: Any) -> bool:
    return type(model).__module__.startswith("peft.")

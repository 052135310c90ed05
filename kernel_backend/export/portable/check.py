"""Check that the model of this folder computes what it computed where it was exported: `python check.py`.

`expected.safetensors` has synthetic inputs, drawn with the shapes, types and ranges of the training's batches, and the
outputs of the model for them. With `--json` the result is one line of JSON.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
TOLERANCE = 1e-4  # relative; other processors and versions of torch add in another order


def outputs(model: Any, path: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what a model, or the part of it at a dotted path, computes for inputs: tensors, or arrays of Keras."""
    called = model
    for name in filter(None, path.split(".")):
        called = getattr(called, name)
    if _is_keras(model):
        from keras.ops import convert_to_numpy

        found = called(*args, **kwargs, training=False)
        return {name: convert_to_numpy(each) for name, each in _flat(found, "output")}
    import torch

    torch.manual_seed(0)  # for models that draw
    with torch.no_grad():
        found = _flat(called(*args, **kwargs), path or "output")
        return {name: each.detach() for name, each in found if isinstance(each, torch.Tensor)}


def _is_keras(model: Any) -> bool:
    return "keras" in sys.modules and isinstance(model, sys.modules["keras"].Model)


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and values in what a model returns: a tensor, or containers of tensors."""
    if hasattr(value, "shape"):
        yield name, value
    elif hasattr(value, "items"):
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}")
    elif dataclasses.is_dataclass(value):
        yield from _flat({each.name: getattr(value, each.name) for each in dataclasses.fields(value)}, name)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _flat(each, f"{name}[{number}]")


def recorded(folder: str | Path = FOLDER) -> list[dict[str, Any]]:
    """Return the recorded calls of the model, each with `path`, `args`, `kwargs` and `outputs`."""
    from safetensors import safe_open

    made = json.loads((Path(folder) / "structure.json").read_text(encoding="utf-8"))["made"]
    framework = "np" if made == "keras" else "pt"
    with safe_open(Path(folder) / "expected.safetensors", framework=framework) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        calls: list[dict[str, Any]] = json.loads(file.metadata()["calls"])
    for call in calls:
        for part in ("args", "kwargs", "outputs"):
            call[part] = _filled(call[part], tensors)
    return calls


def _filled(node: Any, tensors: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_filled(each, tensors) for each in node]
    if isinstance(node, dict):
        if "$tensor" in node:
            return tensors[node["$tensor"]]
        if "$tuple" in node:
            return tuple(_filled(node["$tuple"], tensors))
        return {key: _filled(each, tensors) for key, each in node.items()}
    return node


def compared(model: Any, folder: str | Path = FOLDER) -> tuple[int, float]:
    """Return how many output values were compared, and the largest difference; raise ValueError beyond TOLERANCE.

    The error names the first output that differs.
    """
    count, largest = 0, 0.0
    for call in recorded(folder):
        found = outputs(model, call["path"], call["args"], call["kwargs"])
        for name, expected in call["outputs"].items():
            if name not in found or found[name].shape != expected.shape or found[name].dtype != expected.dtype:
                raise ValueError(f"{name} is missing, or of another shape or type")
            difference, scale = _difference(found[name], expected)
            if difference > TOLERANCE * scale:
                raise ValueError(f"{name} differs by up to {difference:.3g}")
            largest = max(largest, difference)
            count += math.prod(expected.shape)
    return count, largest


def _difference(found: Any, expected: Any) -> tuple[float, float]:
    """Return the largest difference of two tensors or arrays, and the size of values; inf if only one is finite."""
    library: Any
    if hasattr(found, "double"):
        import torch as library

        if library.equal(found, expected):
            return 0.0, 1.0
        one, other = found.double(), expected.double()
    else:
        import numpy as library

        if library.array_equal(found, expected):
            return 0.0, 1.0
        one, other = found.astype("float64"), expected.astype("float64")
    finite = library.isfinite(one) & library.isfinite(other)
    same = (one == other) | (library.isnan(one) & library.isnan(other))
    if not bool((finite | same).all()):
        return math.inf, 1.0
    one, other = one[finite], other[finite]
    if not len(one):
        return 0.0, 1.0
    return float(abs(one - other).max()), max(1.0, float(abs(other).max()))


def said(count: int, largest: float, programs: dict[str, float]) -> str:
    """Return the result of a check in words: `bit-equal on 256 outputs`."""
    if not count:
        return "it loads; no outputs were compared, as the training recorded no inputs that can be made anew"
    found = f"bit-equal on {count:,} outputs" if largest == 0 else f"{count:,} outputs differ by up to {largest:.3g}"
    each = [f"{name} {f'by up to {far:.2g}' if far else 'bit-equal, too'}" for name, far in programs.items()]
    return "; ".join([found, *each])


def compared_programs(model: Any, folder: str | Path = FOLDER) -> dict[str, float]:
    """Return by file name how far `model.pt2` and `model.onnx` are from the model; raise ValueError beyond TOLERANCE.

    They are run with the recorded batch and with one of twice the size; each row must have its largest value in the
    same place.
    """
    call = next((each for each in recorded(folder) if not each["path"]), None)
    found = {}
    for name, run in (("model.pt2", _pt2), ("model.onnx", _onnx)):
        if call is None or not (Path(folder) / name).exists():
            continue
        program, found[name] = run(Path(folder) / name), 0.0
        for args, kwargs in ((call["args"], call["kwargs"]), _doubled(call)):
            expected = outputs(model, "", args, kwargs)
            computed = program(args, kwargs)
            if len(computed) != len(expected):
                raise ValueError(f"{name} has {len(computed)} outputs, and the model {len(expected)}")
            for (output, one), other in zip(expected.items(), computed, strict=True):
                if one.shape != other.shape:
                    raise ValueError(f"{name}: {output} has another shape")
                difference, scale = _difference(other.to(one.dtype), one)
                same = difference == 0 or not one.dim() or bool((one.argmax(-1) == other.argmax(-1)).all())
                if difference > TOLERANCE * scale or not same:
                    raise ValueError(f"{name}: {output} differs by up to {difference:.3g}")
                found[name] = max(found[name], difference)
    return found


def _pt2(path: Path) -> Any:
    import torch

    module = torch.export.load(path).module()

    def run(args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        torch.manual_seed(0)  # as for the model
        with torch.no_grad():
            return [each for _, each in _flat(module(*args, **kwargs), "") if isinstance(each, torch.Tensor)]

    return run


def _onnx(path: Path) -> Any:
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(path)
    names = [each.name for each in session.get_inputs()]

    def run(args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        given = [each for _, each in _flat(args, "")] + [each for _, each in _flat(kwargs, "")]
        if kwargs.keys() >= set(names):
            given = [kwargs[name] for name in names]
        arrays = {name: each.numpy() for name, each in zip(names, given, strict=True)}
        return [torch.from_numpy(each) for each in session.run(None, arrays)]

    return run


def _doubled(call: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the inputs of a call for twice as many samples."""
    tensors = [each for _, each in _flat([call["args"], call["kwargs"]], "") if each.ndim]
    size = tensors[0].shape[0] if tensors else -1

    def twice(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(twice(each) for each in value)
        if isinstance(value, dict):
            return {key: twice(each) for key, each in value.items()}
        whole = getattr(value, "ndim", 0) and value.shape[0] == size
        return value.repeat(2, *[1] * (value.ndim - 1)) if whole else value

    return twice(call["args"]), twice(call["kwargs"])


def main() -> None:
    """Load the model, compare its outputs, and print the result."""
    sys.path.insert(0, str(FOLDER))
    from model import load  # type: ignore[import-not-found]

    model = load(FOLDER)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # sums of several threads have another order
    count, largest = compared(model)
    programs = compared_programs(model)
    if "--json" in sys.argv:
        modules = {name: getattr(each, "__file__", None) for name, each in list(sys.modules.items())}
        found = {"compared": count, "difference": largest, "programs": programs, "modules": modules}
        print(json.dumps(found))
    else:
        print(said(count, largest, programs))


if __name__ == "__main__":
    main()

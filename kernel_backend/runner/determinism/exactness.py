"""Set up a process for bit-exact results, record what these depend on, and describe the guarantee to the user."""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import platform
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import nn

from kernel_backend import NUMERICS
from kernel_backend.errors import InvalidRequest
from kernel_backend.installed_code import is_of_package
from kernel_backend.model.experiment import Config
from kernel_backend.snapshots.environment import cpu_name, driver, numerics_variables

_BY_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # determined by `threads`
_BUILT_WITH = {  # names in the output of torch.__config__.show()
    "mkl": r"oneAPI Math Kernel Library Version (\S+)",
    "onednn": r"MKL-DNN v(\S+)",
    "openmp": r"OpenMP (\d+)",
    "blas": r"BLAS_INFO=(\w+)",
}


def settle(kind: str, config: Config, local_rank: int) -> torch.device:
    """Set up torch in this process so that equal inputs give equal bits; return the device of this rank.

    `kind` is the kind of the node's slots, such as `cuda`. Raises InvalidRequest if the slots are GPUs that this torch
    cannot use.
    """
    torch.set_num_threads(config.threads or 1)
    with contextlib.suppress(RuntimeError):  # can be set only once per process, before the first parallel work
        torch.set_num_interop_threads(1)
    if config.reproducible != "off":
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = False
    return _device(kind, local_rank)


def _device(kind: str, local_rank: int) -> torch.device:
    if kind != "cuda":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InvalidRequest(
            f"the slots here are GPUs, and torch {torch.__version__} of {sys.executable} cannot use them: install "
            "a CUDA build of torch, or submit with --device cpu"
        )
    # The launcher may show each rank only its own device, or all devices.
    index = local_rank % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def numerics(device: torch.device, config: Config, size: int, backend: str) -> dict[str, str]:
    """Return, by name, what bit-exact results depend on besides the snapshot: versions, device, threads and so on.

    `size` is the number of ranks, `backend` the library by which they communicate. A resume compares the result with
    that of the checkpoint.
    """
    facts = {
        "numerics": str(NUMERICS),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "build": xxhash.xxh3_64_hexdigest(torch.__config__.show().encode()),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "deterministic": "yes" if torch.are_deterministic_algorithms_enabled() else "no",
        "reproducible": config.reproducible,
    }
    if config.amp is not None:
        facts["amp"] = config.amp
    if config.reproducible != "portable":  # math libraries choose their kernels by the CPU model
        facts["cpu"] = cpu_name()
    if (keras := sys.modules.get("keras")) is not None and keras.backend.backend() == "tensorflow":
        facts |= {"tensorflow": sys.modules["tensorflow"].__version__, "keras": keras.__version__}
    if device.type == "cuda":
        facts |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}  # type: ignore[no-untyped-call]
    # With logical workers the tree fixes the order of sums; otherwise it depends on the number of slots.
    return facts if config.logical_workers else facts | {"slots": str(size), "backend": backend}


def libraries(device: torch.device, backend: str) -> dict[str, str]:
    """Return, by name, versions and settings of this rank's libraries, for diagnosis.

    Unlike the result of `numerics`, they are not compared by a resume. `backend` is the library by which the ranks
    communicate.
    """
    built = torch.__config__.show()
    facts = {"interop_threads": str(torch.get_num_interop_threads())}
    facts |= {name: value for name, value in numerics_variables(os.environ).items() if name not in _BY_THREADS}
    for name, pattern in _BUILT_WITH.items():
        if found := re.search(pattern, built):
            facts[name] = found[1]
    if device.type == "cuda":
        facts["capability"] = ".".join(map(str, torch.cuda.get_device_capability(device)))
        if version := driver():
            facts["driver"] = version
        if torch.distributed.is_nccl_available():
            facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    hvd = sys.modules.get("horovod.torch") if backend == "horovod" else None
    if hvd is not None:
        parts = [part for part in ("gloo", "mpi", "nccl", "cuda", "rocm", "ccl") if getattr(hvd, f"{part}_built")()]
        facts["horovod"] = f"{metadata.version('horovod')} with {' '.join(parts)}"
    return facts


def guarantee(config: Config, size: int, device: torch.device, asks_rank: bool, generators: Sequence[str] = ()) -> str:
    """Return a sentence that says under which changes (kills, slots, hardware) the result stays bit-identical.

    `size` is the number of ranks. `asks_rank` means that the user's functions take the rank or the number of ranks, so
    that their results may depend on these. `generators` are paths of random generators that parts of the training hold.
    """
    if config.reproducible == "off":
        return "not reproducible: --reproducible off"
    if generators and config.rng == "stream":
        return f"not reproducible: {generators[0]} is a random generator of its own, which --rng stream does not save"
    elastic = config.logical_workers and not asks_rank
    slots = "any number of slots" if elastic else f"{size} slot" + "s" * (size != 1)
    if device.type == "cuda":
        where = torch.cuda.get_device_name(device)
    else:
        where = "any x86-64 CPU" if config.reproducible == "portable" else "this kind of CPU"
    return f"reproducible: {unchanged(slots, where)}"


def unchanged(slots: str, where: str) -> str:
    """Return the promise that a training has the same result after any kill, on these slots and this hardware."""
    return f"a kill changes no bit of the result, on {slots} and {where}"


def writes_unseen(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer], own: Sequence[Path]) -> bool:
    """Return True if the user's code, in the folders `own`, seems to write to tensors by their attribute `data`.

    Such a write does not increment the tensor's version. So a checkpoint that is copied while the training continues
    may be inconsistent without being detected.
    """
    kinds = {type(module) for module in model.modules()} | set(map(type, optimizers))
    files = {own[0] / "definition.py", *(Path(file) for kind in kinds if (file := _file_of(kind)))}
    theirs = [file for file in files if not is_of_package(file) and any(map(file.is_relative_to, own))]
    return any(_touches_data(ast.parse(file.read_bytes())) for file in theirs if file.exists())


def _file_of(kind: type) -> str | None:
    with contextlib.suppress(TypeError, OSError):
        return inspect.getsourcefile(kind)
    return None


def _touches_data(tree: ast.AST) -> bool:
    """Return True if code uses an attribute `data` that may be a tensor's, as `torch.utils.data` is not."""
    uses = [node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "data"]
    return any(not _names(base, "utils") and not _names(base, "self") for base in uses)


def _names(base: ast.expr, name: str) -> bool:
    return (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", None)) == name


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Return how the values of `numerics` changed since a checkpoint, as `torch 2.12 -> 2.13`; None if none did.

    The backend and the number of slots are not compared.
    """
    # Both backends sum in the same order, and the service has reported a change of slots already.
    names = [name for name in {**before, **now} if name not in ("backend", "slots")]
    changed = [
        f"{name} {before.get(name, 'unset')} -> {now.get(name, 'unset')}"
        for name in names
        if before.get(name) != now.get(name)
    ]
    return ", ".join(changed) or None


def hear_nondeterminism(tell: Callable[[str], None]) -> None:
    """Call `tell` with the name of each operation that torch warns of as nondeterministic, once for each.

    Such warnings are not shown any more; all others are.
    """
    told: set[str] = set()
    show = warnings.showwarning

    def heard(message: Warning | str, category: type[Warning], *place: Any) -> None:
        text = str(message)
        if "does not have a deterministic implementation" in text:
            operation = text.split(" does not have")[0]
            if operation not in told:
                told.add(operation)
                tell(operation)
        else:
            show(message, category, *place)

    warnings.showwarning = heard  # type: ignore[assignment]

"""Compute the key of a forkserver: a digest of all that ranks inherit from it and cannot change after the fork.

If a rank's own environment gives the same key, it may be forked, and behaves like a new interpreter.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# Variables read when an interpreter starts, when torch, Lightning or their dependencies are imported, or when a library
# is loaded. Other variables are read after the fork, and are set per rank.
_READ_AT_IMPORT = (
    "PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG", "TZ", "HOME", "TMPDIR", "XDG_CACHE_HOME",
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "NPY_", "NUMEXPR_",
    "ATEN_", "DNNL_", "ONEDNN_", "TORCH", "PYTORCH_", "KINETO_", "TRITON_",
    "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "HIP_", "HSA_", "ROCM_", "ROCBLAS_", "MIOPEN_",
    "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "TOKENIZERS_", "SAFETENSORS_", "USE_", "MPL", "FSSPEC_", "PL_",
)  # fmt: skip
_EACH_RANKS_OWN = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")  # read when a process first uses a device
_INSTALLED = (".dist-info", ".egg-info", ".egg-link", ".pth", "customize.py")
_LIMITS = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def key(env: Mapping[str, str], frameworks: Sequence[str] = ()) -> str:
    """Return the key of the forkserver that may fork ranks with the environment variables `env`.

    The ranks use this process's interpreter. `frameworks` are the modules that the forkserver imports besides torch.
    """
    facts = [variables(env), inherited(), installed(), *frameworks]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return those of the environment variables that torch or a library reads when it is imported.

    A forked rank cannot change them, since the forkserver has imported the libraries before.
    """
    return {name: env[name] for name in env if name.startswith(_READ_AT_IMPORT) and name not in _EACH_RANKS_OWN}


def inherited() -> dict[str, Any]:
    """Return what child processes inherit from this process besides environment variables, such as resource limits.

    A forked rank inherits the same from its forkserver.
    """
    return {
        "host": socket.gethostname(),
        "namespaces": [_link(f"/proc/self/ns/{name}") for name in _NAMESPACES],
        "cgroup": _text("/proc/self/cgroup"),
        "oom": _text("/proc/self/oom_score_adj"),
        "umask": [line for line in _text("/proc/self/status").splitlines() if line.startswith("Umask")],
        "user": [os.getuid(), os.getgid(), sorted(os.getgroups())],
        "cores": sorted(os.sched_getaffinity(0)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in _LIMITS},
    }


def installed() -> list[Any]:
    """Return facts that identify the interpreter, Daylight's files and the importable modules.

    The list changes whenever a package is installed, so that the key of the forkserver changes as well.
    """
    return [sys.version, _stamp(Path(os.path.realpath(sys.executable))), sys.path, *_ours(), *map(_folder, sys.path)]


def _ours() -> Iterator[Any]:
    # By os.walk, as each launcher does this, and each idle forkserver every few seconds: pathlib takes thrice the time.
    for folder, subfolders, names in os.walk(Path(__file__).parents[2]):
        subfolders[:] = sorted(name for name in subfolders if name != "__pycache__")
        yield from (_stamp(f"{folder}/{name}") for name in sorted(names) if name.endswith(".py"))


def _folder(entry: str) -> list[Any]:
    """Return the importable names in a folder of `sys.path`, and when packages were installed into it.

    The folder's own modification time is not used: saving a notebook there would change it, and so would the first
    import after an installation.
    """
    try:
        names = sorted(os.listdir(entry))
    except OSError:  # the entry is a zip archive, or missing
        return [_stamp(Path(entry))]
    stamped = [_stamp(Path(entry, name)) for name in names if name.endswith(_INSTALLED)]
    return [name for name in names if name.endswith((".py", ".so")) or _package(name)] + stamped


def _package(name: str) -> bool:
    return name.isidentifier() and name != "__pycache__"


def _stamp(path: str | Path) -> list[Any]:
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return [str(path), found.st_mtime_ns, found.st_size]
    return [str(path)]


def _link(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)
    return ""


def _text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text()
    return ""

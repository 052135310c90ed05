"""Track project modules that this kernel has imported, because a job gets their current files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from kernel_backend.installed_code import is_installed


class _Import(NamedTuple):
    spec: ModuleSpec  # `reload` creates a new one
    file: Path
    digest: str | None


class Imported:
    """Record of the project modules imported by this kernel, with the state of their sources at that time.

    `look` takes a millisecond for some thousands of modules.
    """

    def __init__(self) -> None:
        self._known: dict[str, object] = {}  # checked modules: name -> spec at that time
        self._seen: dict[str, _Import] = {}
        self._times: dict[str, float] = {}  # by autoreload, when `look` was called last

    def look(self) -> None:
        """Record a digest of the source of each project module that was imported or reloaded since the last call."""
        # Copied in one step, as other threads may import; attributes are not read, as some modules load lazily.
        for name, module in sys.modules.copy().items():
            spec = _spec(module)
            if self._known.get(name, self) is not spec:
                self._known[name] = spec
                self._seen.pop(name, None)
                if isinstance(spec, ModuleSpec) and spec.has_location:
                    origin = str(spec.origin)
                    if origin.endswith(".py") and not is_installed(origin):
                        self._seen[name] = _Import(spec, Path(origin), _digest(Path(origin)))
        times = _autoreload_times()
        for name in self._seen.keys() & times.keys() & self._times.keys():
            seen = self._seen[name]
            if times[name] != self._times[name] and times[name] == _time(seen.file):
                self._seen[name] = seen._replace(digest=_digest(seen.file))
        self._times = times

    def changed(self, files: Mapping[str, Path]) -> Iterator[str]:
        """Yield a warning for each module in `files` (name -> file) whose file changed since the kernel imported it."""
        self.look()
        for name, file in sorted(files.items()):
            seen = self._seen.get(name)
            if seen is not None and seen.file == file and seen.digest != _digest(file):
                yield (
                    f"{file.name} has changed since this kernel imported it: the job gets the file as it is now. "
                    f"Restart the kernel, or importlib.reload({name}), to see the same here"
                )


def _spec(module: object) -> object:
    try:
        return object.__getattribute__(module, "__dict__").get("__spec__")
    except AttributeError:  # sys.modules may contain other objects
        return None


def _autoreload_times() -> dict[str, float]:
    """Return the times of change of the files that IPython's autoreload has loaded, by module.

    It updates functions in place, so that the module's spec stays.
    """
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    magics = shell.magics_manager.registry.get("AutoreloadMagics") if shell is not None else None
    reloader = getattr(magics, "_reloader", None)
    failed = set(getattr(reloader, "failed", {}).values())
    return {name: time for name, time in getattr(reloader, "modules_mtimes", {}).items() if time not in failed}


def _time(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def _digest(file: Path) -> str | None:
    try:
        return xxhash.xxh3_128_hexdigest(file.read_bytes())
    except OSError:
        return None

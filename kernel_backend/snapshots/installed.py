"""List the packages installed in an interpreter from their files, without importing them.

Uses the standard library only. Run as a script by any Python from 3.11 on, even one without Daylight, it prints JSON.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from functools import cache, lru_cache
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

OURS = ("daylight", "jupyter_ext", "kernel_backend")  # packages of Daylight that a worker needs
_BUILT = {"__pycache__", "node_modules"}
_BROWSERS = {"labextension", "static"}  # folders of Daylight that only browsers need
MAX_FILES, MAX_BYTES = 20_000, 16 * 2**20  # of an editable distribution that is fully digested and included
_SETTLED_NS = 2_000_000_000


def installed() -> dict[str, Any]:
    """Return the fields of an `Environment` record that depend on this interpreter's files.

    Installed packages are cached until a folder on the module path changes, digests of sources until a file changes.
    """
    found = _distributions(tuple(_folders()))
    ours = own_root()
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "distributions": found["distributions"],
        "urls": found["urls"],
        "editable": {name: digest_of(sources(Path(root))) for name, root in found["editable"].items()},
        "conda": found["conda"],
        "horovod": found["horovod"],
        "daylight": digest_of(own_files(ours)) if ours else None,
    }


def editable_roots() -> dict[str, Path]:
    """Return the folders of editable packages by name, without Daylight's own."""
    return {name: Path(root) for name, root in _distributions(tuple(_folders()))["editable"].items()}


def sources(root: Path) -> dict[str, Path]:
    """Return the code files below a folder by relative path: modules and package contents, at most MAX_FILES.

    Other files (notebooks, data, results) are left out: they change often and affect no import.
    """
    files = _files(root)
    return {
        name: path
        for name, path in files.items()
        if name.endswith((".py", ".so")) or f"{name.rpartition('/')[0]}/__init__.py" in files
    }


def _files(root: Path, without: Collection[str] = ()) -> dict[str, Path]:
    """Return the source files below a folder by relative path.

    Hidden files, virtual environments, build products and the folders named in `without` are left out.
    """
    found: dict[str, Path] = {}
    for folder, folders, files in os.walk(root):
        kept = (each for each in folders if not each.startswith(".") and not each.endswith(".egg-info"))
        left = (each for each in kept if each not in _BUILT and each not in without)
        folders[:] = sorted(each for each in left if not (Path(folder, each) / "pyvenv.cfg").exists())
        for file in sorted(files):
            if not file.startswith(".") and not file.endswith((".pyc", ".pyo")):
                path = Path(folder, file)
                found[path.relative_to(root).as_posix()] = path
                if len(found) == MAX_FILES:
                    return found
    return dict(sorted(found.items()))


def own_root() -> Path | None:
    """Return the folder from which this interpreter imports Daylight; None if it is not installed."""
    spec = importlib.util.find_spec("kernel_backend")
    return Path(spec.origin).parents[1] if spec and spec.origin else None


def own_files(root: Path) -> dict[str, Path]:
    """Return the files of Daylight below `root` that a worker needs; the keys are their paths in a wheel."""
    found: dict[str, Path] = {}
    for package in OURS:
        found |= {f"{package}/{name}": path for name, path in _files(root / package, _BROWSERS).items()}
    return dict(sorted(found.items()))


def digest_of(files: dict[str, Path]) -> str:
    """Return the sha256 of the files' names and contents.

    Beyond MAX_BYTES, sizes and modification times replace the contents.
    """
    stats = {name: stat for name, path in files.items() if (stat := _stat(path))}
    small = sum(stat.st_size for stat in stats.values()) <= MAX_BYTES
    whole = hashlib.sha256()
    for name, stat in stats.items():
        what = _content(files[name], stat) if small else f"{stat.st_size} {stat.st_mtime_ns}"
        whole.update(f"{name}\0{what}\n".encode(errors="surrogateescape"))
    return whole.hexdigest()


def _content(path: Path, stat: os.stat_result) -> str:
    # A file that changed a moment ago may change again within one tick of the clock that stamps it.
    settled = time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > _SETTLED_NS
    read = _known_content if settled else _known_content.__wrapped__
    return read(path, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


@lru_cache(maxsize=MAX_FILES)
def _known_content(path: Path, *_identity: int) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:  # unreadable: only its existence counts
        return "unreadable"


def _stat(path: Path) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        return path.stat()
    return None


def _folders() -> Iterator[tuple[str, int]]:
    """Yield path and modification time of each folder on `sys.path`, and of conda's metadata.

    The current folder is left out, since nothing is installed in it.
    """
    for each in [*sys.path, os.path.join(sys.prefix, "conda-meta")]:
        stat = _stat(Path(each)) if each and os.path.abspath(each) != os.getcwd() else None
        if stat is not None:
            yield each, stat.st_mtime_ns


@cache
def _distributions(folders: tuple[tuple[str, int], ...]) -> dict[str, dict[str, str]]:
    versions: dict[str, str] = {}
    urls: dict[str, str] = {}
    editable: dict[str, str] = {}
    horovod: dict[str, str] = {}
    for each in importlib.metadata.distributions(path=[folder for folder, _ in folders]):
        with contextlib.suppress(OSError, ValueError, KeyError):  # a broken distribution cannot be imported either
            name, version = _name_and_version(each)
            if not name or name in versions:  # the first one on sys.path is imported
                continue
            versions[name] = version
            root, url = _origin(each)
            if root is not None and name != "daylight":
                editable[name] = root
            elif url is not None and name != "daylight":
                urls[name] = url
            if name == "horovod":
                horovod = _horovod(each)
    return {
        "distributions": dict(sorted(versions.items())),
        "urls": dict(sorted(urls.items())),
        "editable": dict(sorted(editable.items())),
        "horovod": horovod,
        "conda": _conda(Path(sys.prefix, "conda-meta")),
    }


def _name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Return name and version of a package.

    They are read from the folder name `name-version.dist-info` if possible, which saves reading each METADATA file.
    """
    path = Path(str(getattr(distribution, "_path", "")))
    name, dash, version = path.name.removesuffix(".dist-info").partition("-")
    if path.suffix != ".dist-info" or not dash:
        name, version = distribution.metadata["Name"] or "", distribution.version
    return re.sub(r"[-_.]+", "-", name).lower(), version


def _origin(distribution: Distribution) -> tuple[str | None, str | None]:
    """Return the folder of an editable package, and the URL of one that is not from an index (PEP 610).

    At most one of them is not None. User, password and query of a URL are removed, as they may be secrets.
    """
    text = distribution.read_text("direct_url.json")
    if text is None:
        path = Path(str(getattr(distribution, "_path", "")))
        developed = path.suffix == ".egg-info" and path.is_dir() and "site-packages" not in path.parts
        return (str(path.parent), None) if developed and "dist-packages" not in path.parts else (None, None)
    told = json.loads(text)
    parts = urlsplit(told["url"])
    if told.get("dir_info", {}).get("editable"):
        return _import_root(distribution, Path(unquote(parts.path))), None
    host = parts.netloc.rpartition("@")[2]
    if parts.scheme == "ssh" and parts.username:  # git@host: the user is no secret, and is needed
        host = f"{parts.username}@{host}"
    url = urlunsplit((parts.scheme, host, quote(unquote(parts.path)), "", ""))  # normalised: pip and uv differ
    if vcs := told.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    elif hashed := _hash(told.get("archive_info", {}), parts.fragment):
        url = f"{url}#{hashed}"
    if inner := told.get("subdirectory"):
        url += f"{'&' if '#' in url else '#'}subdirectory={inner}"
    return None, url


def _hash(archive: dict[str, Any], fragment: str) -> str | None:
    """Return the digest `sha256=...` of the file from which a package was installed; None if unknown.

    `archive` is the `archive_info` of the package's `direct_url.json` (PEP 610), where most installers write the
    digest; uv writes it into the `fragment` of the URL.
    """
    if sha256 := archive.get("hashes", {}).get("sha256"):
        return f"sha256={sha256}"
    return archive.get("hash") or (fragment if fragment.startswith("sha256=") else None)


def _import_root(distribution: Distribution, project: Path) -> str:
    """Return the folder from which an editable package is imported: the one that its installation put on sys.path.

    If that is unknown, return the folder `src` of the project, or the project itself.
    """
    for file in distribution.files or ():
        if file.suffix == ".pth":
            with contextlib.suppress(OSError):
                lines = Path(str(distribution.locate_file(file))).read_text().splitlines()
                if lines and os.path.isdir(lines[0].strip()):
                    return lines[0].strip()
        elif file.name.startswith("__editable__") and file.name.endswith("_finder.py"):
            with contextlib.suppress(OSError, ValueError, SyntaxError):
                mapping = re.search(
                    r"^MAPPING.*?= (\{.*\})", Path(str(distribution.locate_file(file))).read_text(), re.M
                )
                packages = ast.literal_eval(mapping[1]) if mapping else {}
                if packages:
                    return str(Path(next(iter(packages.values()))).parent)
    return str(project / "src" if (project / "src").is_dir() else project)


def _horovod(distribution: Distribution) -> dict[str, str]:
    """Return how Horovod was built, read from its installed files: with which frameworks, and the wheel's tag."""
    flags = {}
    with contextlib.suppress(OSError, ValueError):
        built = json.loads(Path(str(distribution.locate_file("horovod/metadata.json"))).read_text())
        flags = {str(name): str(value) for name, value in built.items() if name != "dummy"}
    tags = re.findall(r"^Tag: (\S+)", distribution.read_text("WHEEL") or "", re.MULTILINE)
    return flags | ({"tag": ".".join(tags)} if tags else {})


def _conda(folder: Path) -> dict[str, str]:
    """Return the packages of a conda environment by name, each as "version=build sha256:..."."""
    found = {}
    for file in _records(folder):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads(file.read_bytes())
            kind = next((kind for kind in ("sha256", "md5") if told.get(kind)), None)
            digest = f" {kind}:{told[kind]}" if kind else ""
            found[str(told["name"])] = f"{told['version']}={told['build']}{digest}"
    return dict(sorted(found.items()))


def _records(folder: Path) -> Iterable[Path]:
    return folder.glob("*.json") if folder.is_dir() else ()


if __name__ == "__main__":
    asked = (str(root) if (root := own_root()) else None) if "--own-root" in sys.argv else installed()
    print(json.dumps(asked))

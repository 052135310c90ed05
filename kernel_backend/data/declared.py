"""Fingerprint the data that `--data` declares, to be recorded in the snapshot."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations, product
from keyword import iskeyword
from pathlib import Path, PurePath
from typing import NamedTuple

from kernel_backend.data import folders, objects
from kernel_backend.data.base import Fingerprint, Say, changed_text
from kernel_backend.data.cache import StatCache
from kernel_backend.errors import InvalidRequest
from kernel_backend.home import home
from kernel_backend.model.snapshot import DATA, Data

CACHE = "fingerprints.db"  # file in the home


class Declared(NamedTuple):
    """Fingerprints of a submission's declared data: a record and a list of files for each path, and warnings."""

    data: tuple[Data, ...] = ()
    files: dict[str, bytes] = {}  # the lists, by name in the snapshot
    warnings: tuple[str, ...] = ()

    @property
    def inputs(self) -> dict[str, str]:
        """Return the URL of each input by its name: data that a training finds as a local folder."""
        return {each.into: each.path for each in self.data if each.into}

    @property
    def mapped(self) -> tuple[str, ...]:
        """Return the paths in the working folder at which a training finds remote data, as `./images`."""
        return tuple(each.mapped for each in self.data if each.mapped)


def fingerprint(path: str, say: Say = lambda text: None, at: Path | None = None) -> Fingerprint:
    """Return the fingerprint of the data that is now at an absolute path or a URL.

    `say` is called with progress if it takes long; `at` is the home directory with the cache of digests, by default the
    user's. Raises InvalidRequest if nothing exists there.
    """
    if is_url(path):
        return objects.fingerprint(path)
    return folders.fingerprint(Path(path), StatCache((at or home()) / CACHE), say)


def declare(names: Iterable[str], cwd: Path, say: Say = lambda text: None) -> Declared:
    """Fingerprint the data that `--data` declares; return a record and a list of files for each path, without repeats.

    `names` are the values of `--data`: paths, of which relative ones start at `cwd`, and URLs, which may be inputs with
    a name, as `train=s3://bucket/train`, or a path in the working folder, as `./images=s3://bucket/images`. `say` is
    called with progress. Raises InvalidRequest if nothing exists at a path, or if one input lies in another.
    """
    data: list[Data] = []
    files: dict[str, bytes] = {}
    warnings: list[str] = []
    paths: dict[str, str] = {}
    inputs: dict[str, str] = {}
    for text in names:
        into, name = named(text)
        path = name if is_url(name) else os.path.abspath(cwd / Path(name).expanduser())
        if into and inputs.setdefault(into, path) != path:
            raise InvalidRequest(f"--data {text}: {into} is {inputs[into]} already: give one of them another name")
        paths.setdefault(path, text)
    into_of = {path: into for into, path in inputs.items()}
    if len(into_of) < len(inputs):
        raise InvalidRequest(f"--data {' and '.join(sorted(inputs))}: two of them name the same data: leave one out")
    _check_apart(inputs, [path for path in paths if not is_url(path)], cwd)
    for number, (path, name) in enumerate(paths.items()):
        found, listed = fingerprint(path, say), f"{DATA}/{number}.tsv"
        files[listed] = found.listed
        sizes = {"files": len(found.files), "bytes": found.bytes}
        data.append(Data(name=name, into=into_of.get(path, ""), path=path, digest=found.digest, listed=listed, **sizes))
        if found.unreadable:
            warnings.append(
                f"--data {name}: {len(found.unreadable):,} of {len(found.files):,} files cannot be read (first: "
                f"{found.unreadable[0]}): what is in them is not known, and a change of it will not be seen"
            )
    return Declared(tuple(data), files, tuple(warnings))


def changed_since(data: Data, listed: bytes, at: Path | None = None) -> str:
    """Return a text on how declared data has changed since the submission; "" if it is unchanged.

    `data` is its record, `listed` its stored list of files, and `at` the home directory with the cache of digests, by
    default the user's.
    """
    try:
        found = fingerprint(data.path, at=at)
    except InvalidRequest as error:
        return error.message
    return "" if found.digest == data.digest else changed_text(data.path, listed, found.listed)


def named(text: str) -> tuple[str, str]:
    """Split a value of `--data` into the input's name or path, "" for none, and the path or URL.

    Raises InvalidRequest for a name that no argument of a function can have, and a path outside of the working folder.

    Examples
    --------
    >>> named("train=s3://bucket/train")
    ('train', 's3://bucket/train')
    >>> named("data/images=s3://bucket/images")
    ('./data/images', 's3://bucket/images')
    >>> named("/data/a=1")
    ('', '/data/a=1')
    """
    into, found, where = text.partition("=")
    if not found or not is_url(where) or is_url(into):
        return "", text
    if "/" in into or into.startswith((".", "~")):
        return _mapped(into, where), where
    if not into.isidentifier() or iskeyword(into):
        raise InvalidRequest(f"--data {text}: {into} is no name: write a word, as train={where}")
    return into, where


def _mapped(path: str, where: str) -> str:
    inside = PurePath(os.path.normpath(path))
    if path.startswith(("/", "~")) or not inside.parts or ".." in inside.parts:
        name = inside.name.strip(".~") or "data"
        raise InvalidRequest(
            f"--data {path}={where}: {path} is no path inside the working folder, which is all that a training has to "
            f"itself: write one, as ./{name}={where}, and have the code read {name}"
        )
    return f"./{inside}"


def _check_apart(inputs: Mapping[str, str], paths: Sequence[str], cwd: Path) -> None:
    """Raise InvalidRequest if an input, or a declared path, lies in the place of another input."""
    for outer, inner in permutations(inputs, 2):
        if PurePath(inner).is_relative_to(outer):
            raise InvalidRequest(
                f"--data {inner}=...: it lies in {outer}, which is {inputs[outer]}: give it another place"
            )
    for (into, url), path in product(inputs.items(), paths):
        if into.startswith("./") and Path(path).is_relative_to(cwd / into):
            raise InvalidRequest(f"--data {path}: the training finds {url} there, by --data {into}=...: leave one out")


def is_url(path: str) -> bool:
    """Return True for a URL of an object store, False for a path."""
    return "://" in path

"""Compare data: declared files, delivered samples, and files that were read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath, PurePosixPath

import xxhash

from kernel_backend.differences.listing import (
    NAMED,
    Changes,
    changes,
    changes_lines,
    changes_text,
    read_list,
    versions_lines,
)
from kernel_backend.differences.side import Side
from kernel_backend.model.diff import Difference
from kernel_backend.model.facts import Delivered, Observed
from kernel_backend.model.snapshot import PROJECT, Data
from kernel_backend.model.versions import read

_PRETRAINED = {".pt", ".pth", ".safetensors", ".ckpt", ".onnx", ".keras", ".gguf"}
_DETAILS = 40  # lines of details that are shown


def data(a: Side, b: Side) -> Iterator[Difference]:
    """Yield differences of the data of experiments `a` and `b`.

    These are declared files, versions of external data, samples, and files that were read.
    """
    yield from _declared(a, b)
    if a.snapshot.commits != b.snapshot.commits:
        before, after = (" ".join(side.snapshot.commits) or "none" for side in (a, b))
        yield Difference(kind="data", name="external", text=f"external versions: {before}, now {after}")
    yield from _delivered(a, b)
    yield from _observed(a, b)


def pretrained(a: Side, b: Side) -> Iterator[Difference]:
    """Yield differences of `a` and `b` in files with pretrained weights, and in the model's weights at step 0."""
    found = _between(a, b, weights=True)
    if any(found):
        yield _files("weights", "pretrained", "pretrained files: ", found)
    before, after = (side.facts.get("weights") for side in (a, b))
    if before and after and before["digest"] != after["digest"]:
        differ = changes(before["tensors"], after["tensors"])
        names = [*differ.changed, *differ.added, *differ.removed]
        count = f"{len(names)} of {len({**before['tensors'], **after['tensors']})} tensors"
        text = f"the model at step 0: {count} differ, first {names[0]}" if names else "the model at step 0 differs"
        yield Difference(kind="weights", name="step 0", text=text, detail=tuple(names[:_DETAILS]))


def _declared(a: Side, b: Side) -> Iterator[Difference]:
    for before, after in _paired(a.snapshot.data, b.snapshot.data):
        if before is None or after is None:
            one = before or after
            assert one is not None
            text = f"--data {one.name} is {'no longer' if before else 'newly'} declared"
            yield Difference(
                kind="data", name=one.name, text=text, harmless=True
            )  # a declaration alone changes no result
        elif before.digest != after.digest:
            old, new = read_list(a.files[before.listed]), read_list(b.files[after.listed])
            if not old.keys() & new.keys() and before.name != after.name:
                yield Difference(kind="data", name=after.name, text=f"--data {before.name} -> {after.name}")
            elif "://" in after.path:
                found = changes(old, new)
                text, lines = f"{after.name}: {changes_text(found, 'object')}", versions_lines(found, old, new)
                yield Difference(kind="data", name=after.name, text=text, detail=_shown(lines))
            else:
                yield _files("data", after.name, f"{after.name}: ", changes(old, new))


def _paired(a: tuple[Data, ...], b: tuple[Data, ...]) -> Iterator[tuple[Data | None, Data | None]]:
    """Yield pairs of declared data of `a` and `b`: first those with equal names, then the rest by position.

    An input has the name by which the training knows it. A folder may have moved, and so have another name. Where one
    side has no more data, its entry is None.
    """
    by_name = [{each.into or each.name: each for each in side} for side in (a, b)]
    names = by_name[0].keys() & by_name[1].keys()
    yield from ((each, by_name[1][name]) for name, each in by_name[0].items() if name in names)
    rest_a, rest_b = ([each for name, each in side.items() if name not in names] for side in by_name)
    for index in range(max(len(rest_a), len(rest_b))):
        yield (
            rest_a[index] if index < len(rest_a) else None,
            rest_b[index] if index < len(rest_b) else None,
        )


def _delivered(a: Side, b: Side) -> Iterator[Difference]:
    before, after = (read(Delivered, s.facts["delivered"]) if "delivered" in s.facts else None for s in (a, b))
    if before is None or after is None or before.whole != after.whole:
        return
    if before.samples != after.samples:
        text = f"{before.samples:,} samples were delivered in the first epoch, now {after.samples:,}"
        yield Difference(kind="data", name="delivered", text=text)
    elif (before.seed, before.code) == (after.seed, after.code) and before.digest != after.digest:
        text = f"{after.samples:,} samples were delivered as before, with other content"
        yield Difference(kind="data", name="delivered", text=text)


def _observed(a: Side, b: Side) -> Iterator[Difference]:
    found = _between(a, b, weights=False)
    if any(found):
        yield _files("data", "observed", "files that were read: ", found)


def _between(a: Side, b: Side, *, weights: bool) -> Changes:
    before, after = (read(Observed, s.facts["observed"]) if "observed" in s.facts else None for s in (a, b))
    if before is None or after is None:
        return Changes((), (), ())
    old, new = _contents(a, before, weights), _contents(b, after, weights)
    for path in {data.path for side in (a, b) for data in side.snapshot.data}:
        _leave_out(path, old, new, compared=any(_led(side, path) for side in (a, b)))
    old, new = (
        {_name(path, side.experiment.cwd): known for path, known in found.items()}
        for side, found in ((a, old), (b, new))
    )
    _fill(old, new.keys(), a)
    _fill(new, old.keys(), b)
    for name in old.keys() & new.keys():
        if None in (old[name][1], new[name][1]):  # one of them was too large to be digested
            old[name], new[name] = (old[name][0], None), (new[name][0], None)
    found = changes(old, new)
    if before.more or after.more:  # a truncated list may lack files that were read
        return Changes((), (), found.changed)
    return found


def _contents(side: Side, observed: Observed, weights: bool) -> dict[str, tuple[int, str | None]]:
    """Return (size, digest) of each file that a training read, by path.

    If `weights` is True, these are the files with pretrained weights, else all others. A file of declared data that was
    read from another place has its declared path here.
    """
    places = {place: data.path for data in side.snapshot.data if (place := _led(side, data.path))}
    files = [each for each in observed.files if (PurePath(each.path).suffix in _PRETRAINED) == weights]
    return {_declared_path(each.path, places): (each.size, each.digest) for each in files}


def _declared_path(path: str, places: dict[str, str]) -> str:
    for place, declared in places.items():
        if PurePath(path).is_relative_to(place):
            return str(PurePath(declared, PurePath(path).relative_to(place)))
    return path


def _led(side: Side, path: str) -> str | None:
    """Return the place from which a rerun read the data declared at `path`; None if it read from the path itself."""
    data_at = side.experiment.config.data_at
    return next((data_at.get(data.name) for data in side.snapshot.data if data.path == path), None)


def _leave_out(path: str, *sides: dict[str, tuple[int, str | None]], compared: bool) -> None:
    """Remove the files below the declared path `path` from `sides`, the files that each training read, by path.

    The stored lists of declared files are compared instead. Nothing is removed if `compared` is True and all sides have
    files below the path.
    """
    below = [[name for name in side if PurePath(name).is_relative_to(path)] for side in sides]
    if compared and all(below):
        return
    for side, names in zip(sides, below, strict=True):
        for name in names:
            del side[name]


def _fill(contents: dict[str, tuple[int, str | None]], names: Iterable[str], side: Side) -> None:
    """Add to `contents` the size and digest of those files `names` that are in the experiment's snapshot.

    The training may have read the snapshot's copies, which are not among the observed files.
    """
    if side.snapshot.project is None:
        return
    folder = PurePosixPath(PROJECT) / side.snapshot.project.cwd
    for name in set(names) - contents.keys():
        shipped = side.files.get(str(folder / name))
        if shipped is not None:
            contents[name] = len(shipped), xxhash.xxh3_128_hexdigest(shipped)


def _name(path: str, cwd: str) -> str:
    """Return a path relative to the working folder `cwd`, so that equal files of two folders compare equal.

    A path outside of this folder is returned unchanged.
    """
    return str(PurePath(path).relative_to(cwd)) if PurePath(path).is_relative_to(cwd) else path


def _files(kind: str, name: str, head: str, found: Changes) -> Difference:
    lines = changes_lines(found)
    if len(lines) <= NAMED:  # the sentence names them all
        lines = ()
    fields = {"kind": kind, "name": name, "text": head + changes_text(found), "detail": _shown(lines)}
    return Difference.model_validate(fields)


def _shown(lines: tuple[str, ...]) -> tuple[str, ...]:
    more = (f"... and {len(lines) - _DETAILS:,} more",) if len(lines) > _DETAILS else ()
    return (*lines[:_DETAILS], *more)

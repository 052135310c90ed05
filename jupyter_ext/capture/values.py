"""Serialise the values of `--capture` names into files, or report why that is impossible."""

from __future__ import annotations

import sys
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import xxhash

from jupyter_ext.capture.problems import Problem, is_experiment
from jupyter_ext.capture.slice import Slice
from kernel_backend.model.sizes import size
from kernel_backend.model.snapshot import Captured
from kernel_backend.model.values import nearest
from kernel_backend.secret_scan import find_secrets, is_secret, known_secrets, text_of
from kernel_backend.snapshots.archive import MAX_BYTES
from kernel_backend.snapshots.captured import WrittenValue, write, write_together
from kernel_backend.snapshots.loaded import travelling
from kernel_backend.snapshots.object_graph import TooLarge, sharing


@dataclass
class Values:
    """Captured values as contents of files, by name, and a problem for each value that could not be captured."""

    written: dict[str, WrittenValue] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add(self, name: str, namespace: Mapping[str, object], most: int = MAX_BYTES) -> None:
        """Serialise the value of `name`; raise Refused if it cannot be, is a secret, or exceeds `most` bytes."""
        self.written[name] = _written(name, namespace, most)
        self.kinds[name] = type(namespace[name]).__name__

    def with_others(self, others: Values, namespace: Mapping[str, object]) -> Values:
        """Return the union of these captured values and `others`; those that share objects are in one file."""
        found = Values({**self.written, **others.written}, {**self.kinds, **others.kinds}, list(self.problems))
        found.join(namespace)
        return found

    def join(self, namespace: Mapping[str, object]) -> None:
        """Put values that share objects, such as a model and its optimizer, into one file, so that a job's do."""
        if len(self.written) < 2:
            return
        names = list(self.written)
        try:
            for names in sharing({name: namespace[name] for name in self.written}):
                together = write_together({name: namespace[name] for name in names})
                self.written |= dict.fromkeys(names, together)
        except Exception as error:  # any error of the values' own code during pickling
            said = f"{', '.join(names)} cannot be stored together: {type(error).__name__}: {error}"
            self.problems.append(Problem("capture", names[0], None, said))

    @property
    def needs(self) -> list[str]:
        """Return the names of notebook classes and functions without which the captured values cannot be read."""
        return [need for each in self.written.values() for need in each.needs]

    @property
    def files(self) -> dict[str, bytes]:
        """Return the files for the archive by path: one for each value, and the definitions that values depend on."""
        definitions = {each for written in self.written.values() for each in written.definitions}
        own = {written.file(name): written.data for name, written in self.written.items()}
        return own | {name: data for each in definitions for name, data in travelling(each).items()}

    def line(self, name: str, function: str) -> str:
        """Return the line of Python that assigns the value read from its file, by calling `function`, to `name`."""
        written = self.written[name]
        others = ", ".join(each for each in written.together if each != name)
        about = f"{self.kinds[name]}, {size(len(written.data))}{f' with {others}' if others else ''}, from the notebook"
        return f'{name} = {function}("{name}")  # {about}'

    def record(self, name: str, line: int) -> Captured:
        """Return a value's entry in the snapshot: file, format, size, digest; `line` is where the module reads it."""
        written = self.written[name]
        digest, count = xxhash.xxh3_128_hexdigest(written.data), len(written.data)
        fields = {"format": written.format, "bytes": count, "digest": digest, "line": line}
        return Captured.model_validate({"name": name, "file": written.file(name), **fields})


def values(names: Iterable[str], namespace: Mapping[str, object] | None, from_jobs: Collection[str] = ()) -> Values:
    """Return the values of these names in the notebook, serialised into files; those `from_jobs` are not the user's."""
    found = Values()
    for name in dict.fromkeys(names):
        try:
            found.add(name, namespace or {})
        except Refused as refused:
            told = f"{name}, which a job has set, cannot travel" if name in from_jobs else f"--capture {name}"
            found.problems.append(Problem("capture", name, None, f"{told}: {refused}"))
    found.join(namespace or {})
    return found


def read_times(sliced: Slice, found: Values) -> dict[str, int]:
    """Return, for each captured value, the index of the statement before which the module reads it from its file.

    `found` are the captured values.
    """
    history, placed = sliced.history, dict[str, int]()
    for name, written in found.written.items():
        after = _last(history.binders.get(name, []), sliced.start) + 1
        users = [time for time in sliced.needed if time < after and name in history.executed[time].now]
        least = [_last(history.binders.get(need, []), sliced.start) + 1 for need in written.needs]
        placed[name] = max(min([after, *users]), *least, 0)
    return placed


def made_by_target(sliced: Slice, names: Iterable[str]) -> Iterator[Problem]:
    """Yield a problem for each `--capture` name that the submitted cell binds, as this replaces the captured value."""
    for name in names:
        if any(time >= sliced.start for time in sliced.history.binders.get(name, [])):
            message = f"--capture {name}: this cell makes '{name}' itself. Leave out the option, or what makes it."
            yield Problem("capture", name, None, message)


def unused(sliced: Slice, names: Iterable[str]) -> Iterator[str]:
    """Yield a warning for each of the names given to `--capture` whose value no code of the module reads."""
    for name in names:
        if name not in sliced.read:
            yield f"--capture {name}: it travels, and nothing in the cell uses it"


class Refused(Exception):
    """Raised if a value cannot be captured; the message is the reason."""


class Unstorable(Refused):
    """Raised if a value cannot be captured because pickle cannot store it, either."""


def _written(name: str, namespace: Mapping[str, object], most: int) -> WrittenValue:
    if name not in namespace:
        raise Refused(f"the notebook has no '{name}'{nearest(name, [each for each in namespace if each[:1] != '_'])}")
    value = namespace[name]
    if is_secret(name, value) and isinstance(value, str | bytes):
        raise Refused("its name says that it is a secret, and snapshots hold none. Read it from os.environ")
    if isinstance(value, type | types.FunctionType | types.ModuleType):
        raise Refused(f"'{name}' is a {type(value).__name__}, which travels as code")
    if is_experiment(value):
        way_out = f"write net = {name}.load() in another cell, and --capture net"
        raise Refused(f"it is an experiment, which a job cannot reach. Take its model: {way_out}")
    if found := find_secrets(f"{name} = {text_of(value)}", known_secrets()):
        what = f"it holds what looks like {found[0][1]}, and snapshots hold none. Read it from os.environ"
        raise Refused(f"{what}. If it is none, give what holds it another name in '{name}', or leave it out of it")
    _check_size(_bytes(value), most)
    try:
        written = write(value, most)
    except TooLarge as large:
        _check_size(large.bytes, most)
        raise
    except Exception as error:  # any error of the value's own code during pickling
        raise Unstorable(f"a {type(value).__name__} cannot be stored: {type(error).__name__}: {error}") from None
    _check_size(len(written.data), most)
    return written


def _check_size(count: int, most: int) -> None:
    if count > MAX_BYTES:
        limit = f"more than a snapshot holds ({size(MAX_BYTES)})"
        raise Refused(f"it has {size(count)}, {limit}. Write it to a file that the job reads")
    if count > most:
        raise Refused(f"it has {size(count)}, more than {size(most)}")


def _bytes(value: object) -> int:
    """Return a cheap lower bound of the memory that a value takes, in bytes."""
    count = getattr(value, "nbytes", 0)
    return count if isinstance(count, int) else sys.getsizeof(value)


def _last(times: Sequence[int], end: int) -> int:
    return max((time for time in times if time < end), default=-1)

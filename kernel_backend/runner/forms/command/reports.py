"""Read the reports of a program: JSON lines from `run` or in `$DAYLIGHT_METRICS`, and numbers in its log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernel_backend import time_limit
from kernel_backend.definition.reported.labels import LONGEST_LINE, labelled
from kernel_backend.definition.reported.tracebacks import Tracebacks
from kernel_backend.tail import Tail
from kernel_backend.time_limit import TookTooLong, processor_time

LONGEST = 2**20  # bytes of a message
_PLACES = ("step", "epoch")


class Logged(NamedTuple):
    """Values that a program has reported, with the step and epoch that it names for them, or None."""

    values: dict[str, float]
    step: int | None = None
    epoch: int | None = None
    validation: bool = False


class Request(NamedTuple):
    """Request of a program to its rank, such as `checkpoint`, with its `fields`.

    If it has an `answer`, the program waits until a file named after that ID exists.
    """

    kind: str
    fields: Mapping[str, Any]
    answer: str | None


class Messages:
    """Reader of the file of JSON lines to which a program writes messages; invalid lines are collected in `unread`."""

    def __init__(self, path: Path) -> None:
        self._lines = Tail(path, longest=LONGEST)
        self.unread: list[str] = []

    def new(self) -> Iterator[Logged | Request]:
        """Yield the messages written since the last call."""
        for line in self._lines.new():
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except ValueError:
                found = None
            if not isinstance(found, dict):
                self.unread.append(line)
            elif "do" in found:
                yield Request(str(found["do"]), found, found.get("answer"))
            else:
                yield self._logged(found)

    def _logged(self, found: dict[str, Any]) -> Logged:
        validation = bool(found.pop("validation", False))
        numbers = {str(name): float(value) for name, value in found.items() if isinstance(value, int | float)}
        self.unread += [f"{name}: {value!r}" for name, value in found.items() if name not in numbers]
        return logged(numbers, validation)


class LogPatterns:
    """Reader of numbers in a program's log, by regular expressions whose named groups match the numbers."""

    def __init__(self, log: Path, patterns: Sequence[str]) -> None:
        self._patterns = [re.compile(each) for each in patterns]
        self._lines = Tail(log)
        self.unread: list[str] = []

    def new(self) -> Iterator[Logged]:
        """Yield, for each new line of the log with a match, the numbers in it, by the names of the patterns' groups."""
        if self._patterns:
            yield from self._found(self._lines.new())

    def rest(self) -> Iterator[Logged]:
        """Yield the numbers in the last line, if it ends without a line break."""
        if self._patterns:
            yield from self._found(self._lines.rest())

    def _found(self, lines: Iterator[str]) -> Iterator[Logged]:
        written = list(lines)
        numbers: list[dict[str, float]] = [{} for _ in written]
        for pattern in tuple(self._patterns):
            try:
                with processor_time(time_limit.PATTERN_S):
                    for of_line, line in zip(numbers, written, strict=True):
                        for found in pattern.finditer(line):
                            of_line.update(self._numbers(found))
            except TookTooLong:
                self._patterns.remove(pattern)
                self.unread.append(
                    f"{pattern.pattern!r} takes too long to be searched for, and is given up: simplify it"
                )
        yield from (logged(each, validation=False) for each in numbers if each)

    def _numbers(self, found: re.Match[str]) -> dict[str, float]:
        numbers: dict[str, float] = {}
        for name, text in found.groupdict().items():
            if text is not None:
                try:
                    numbers[name] = float(text.replace(",", ""))
                except ValueError:
                    self.unread.append(f"{name}: {text!r}")
        return numbers


class LogLabels:
    """Reader of the named numbers that a program prints in its log, such as `loss: 0.5`."""

    def __init__(self, log: Path) -> None:
        self._lines = Tail(log, longest=4 * (LONGEST_LINE + 1))  # bytes, so that a line which is cut is not read
        self._heading, self._tracebacks = "", Tracebacks()
        self.unread: list[str] = []

    def new(self) -> Iterator[Logged]:
        """Yield, for each new line of the log with named numbers, these by name."""
        yield from self._found(self._lines.new())

    def rest(self) -> Iterator[Logged]:
        """Yield the numbers in the last line, if it ends without a line break."""
        yield from self._found(self._lines.rest())

    def _found(self, lines: Iterator[str]) -> Iterator[Logged]:
        for line in map(self._tracebacks.without, lines):
            values = labelled(f"{self._heading}{line}")
            self._heading = f"{line}\n" if line.rstrip().endswith(":") else ""
            if values:
                yield Logged(values)


_REPORTS = re.compile(rb"DAYLIGHT_METRICS|^\s*(?:from|import)\s+daylight\b", re.MULTILINE)


def log_reader(log: Path, patterns: Sequence[str], code: Path) -> LogPatterns | LogLabels:
    """Return the reader of a program's log: by its patterns, by labels without them, or one that reads nothing.

    It reads nothing if the program may report its numbers itself, as a file in its folder `code` says.
    """
    if patterns or any(_REPORTS.search(each.read_bytes()) for each in _small_files(code)):
        return LogPatterns(log, patterns)
    return LogLabels(log)


def _small_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that may be sources."""
    yield from (each for each in folder.rglob("*") if each.is_file() and each.stat().st_size <= LONGEST)


def logged(numbers: Mapping[str, float], validation: bool) -> Logged:
    """Return a report: the numbers named `step` and `epoch` become its step and epoch, the others its values.

    A `step` or `epoch` that is negative or no whole number is dropped.
    """
    values = {name: value for name, value in numbers.items() if name not in _PLACES}
    step, epoch = (_whole(numbers.get(name)) for name in _PLACES)
    return Logged(values, step, epoch, validation)


def _whole(number: float | None) -> int | None:
    return int(number) if number is not None and 0 <= number < 2**53 and number == int(number) else None

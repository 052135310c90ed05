"""Compare code: the training definition by cell, project files and captured values by file."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence

from kernel_backend.definition.code import is_code, meaning
from kernel_backend.differences.side import Side
from kernel_backend.model.diff import Difference
from kernel_backend.model.snapshot import CAPTURED, DEFINITION, Origin

LARGEST = 200_000  # bytes of a file that is compared line by line
LINES = 400  # lines of a diff that are shown
_MARK = re.compile(r"# cell \[\d+\]")
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
Locate = Callable[[int], Origin | None]
Place = tuple[Sequence[int], Locate]  # line numbers, and a function that locates a line in its cell


def code(a: Side, b: Side) -> Iterator[Difference]:
    """Yield differences of code that runs, ignoring comments, blank lines and cell numbers."""
    for name in sorted(filter(is_code, a.files.keys() | b.files.keys()), key=lambda name: (name != DEFINITION, name)):
        before, after = a.files.get(name), b.files.get(name)
        if before is None or after is None:
            text = f"{_called(name)} is {'new' if before is None else 'gone'}"
            yield Difference(kind="code", name=name, text=text, detail=_detail(name, before or b"", after or b"", a, b))
        elif before != after and meaning(name, before) != meaning(name, after):
            text = _differs(name, before, after, b)
            yield Difference(kind="code", name=name, text=text, detail=_detail(name, before, after, a, b))


def _called(name: str) -> str:
    folder, _, rest = name.partition("/")
    if not rest:
        return "the definition"
    return f"the captured value {rest.rsplit('.', 1)[0]}" if folder == CAPTURED else rest


def _differs(name: str, before: bytes, after: bytes, b: Side) -> str:
    if name != DEFINITION:
        return f"{_called(name)} differs"
    origins = [b.snapshot.locate(line) for line in _changed_lines(before, after)]
    places = [f"cell [{each.cell}]" if each.cell is not None else str(each.file) for each in origins if each]
    named = list(dict.fromkeys(places))
    return f"the definition differs in {', '.join(named)}" if named else "the definition differs"


def _changed_lines(before: bytes, after: bytes) -> list[int]:
    """Return the lines of `after`, from 1, that differ from `before`; for a deletion the line after it."""
    old, new = (text.decode(errors="replace").splitlines() for text in (before, after))
    found: list[int] = []
    for tag, _, _, begin, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            lines = [index + 1 for index in range(begin, max(end, begin + 1)) if index < len(new)]
            found += [line for line in lines if new[line - 1].strip() and not new[line - 1].startswith("# cell [")]
    return found


def _detail(name: str, before: bytes, after: bytes, a: Side, b: Side) -> tuple[str, ...]:
    if name.startswith(f"{CAPTURED}/"):
        return ()  # only digests of captured values are available
    locate = (a.snapshot.locate, b.snapshot.locate) if name == DEFINITION else (_nowhere, _nowhere)
    return _unified(before, after, *locate)


def _nowhere(line: int) -> None:
    return None


def _unified(before: bytes, after: bytes, then: Locate, now: Locate) -> tuple[str, ...]:
    if max(len(before), len(after)) > LARGEST:
        return (f"{len(before):,} bytes, now {len(after):,}",)
    try:
        (old, old_numbers), (new, new_numbers) = map(_without_marks, (before, after))
    except UnicodeDecodeError:
        return (f"{len(before):,} bytes, now {len(after):,}",)
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]  # without the header with file names
    places = (old_numbers, then), (new_numbers, now)
    heads = [_head(lines[at:], *places) if _HUNK.match(line) else line for at, line in enumerate(lines)]
    shown = [line for line in heads if line.strip("+-")]
    left = len(shown) - LINES
    return (*shown[:LINES], *([f"... {left:,} lines more"] if left > 0 else []))


def _without_marks(text: bytes) -> tuple[list[str], list[int]]:
    """Return a definition's lines without the comments that name cells, and the number of each line, from 1."""
    lines = [(line, number) for number, line in enumerate(text.decode().splitlines(), 1) if not _MARK.fullmatch(line)]
    return [line for line, _ in lines], [number for _, number in lines]


def _head(hunk: Sequence[str], old: Place, new: Place) -> str:
    """Return the head of a hunk of a diff with its location in the notebook: `@@ cell [4] line 2 @@`.

    The location is that of the first line that differs, and for a deleted line the place where it was before.
    """
    found = _HUNK.match(hunk[0])
    assert found is not None
    changed = list(itertools.takewhile(lambda line: not _HUNK.match(line), hunk[1:]))
    context = next(index for index, line in enumerate(changed) if line.startswith(("+", "-")))
    run = itertools.takewhile(lambda line: line.startswith(("+", "-")), changed[context:])
    added = any(line.startswith("+") for line in run)
    (numbers, locate), start = (new, int(found[2])) if added else (old, int(found[1]))
    number = numbers[start + context - 1]
    origin = locate(number)
    if origin is None:
        return f"@@ line {number} @@"
    return f"@@ {origin.file if origin.cell is None else f'cell [{origin.cell}]'} line {origin.line} @@"

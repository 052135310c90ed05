"""Differences of code: of the definition by cell, of project files and captured values by file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from kernel_backend.differences.side import Side
from kernel_backend.model.code import is_code, meaning
from kernel_backend.model.diff import Difference
from kernel_backend.model.snapshot import CAPTURED, DEFINITION

LARGEST = 200_000  # bytes of a file that is shown line by line
LINES = 400  # of a file's difference
_MARK = re.compile(r"# cell \[\d+\]\n")


def code(a: Side, b: Side) -> Iterator[Difference]:
    """What runs differently: comments, blank lines and the numbers of cells do not count."""
    for name in sorted(filter(is_code, {**a.files, **b.files}), key=lambda name: (name != DEFINITION, name)):
        before, after = a.files.get(name), b.files.get(name)
        if before is None or after is None:
            text = f"{_called(name)} is {'new' if before is None else 'gone'}"
            yield Difference(kind="code", name=name, text=text, detail=_detail(name, before or b"", after or b""))
        elif before != after and meaning(name, before) != meaning(name, after):
            text = _differs(name, before, after, b)
            yield Difference(kind="code", name=name, text=text, detail=_detail(name, before, after))


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
    """The lines of `after`, counted from 1, that are not as in `before`; of a deletion the one that follows it."""
    old, new = (text.decode(errors="replace").splitlines() for text in (before, after))
    found: list[int] = []
    for tag, _, _, begin, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            lines = [index + 1 for index in range(begin, max(end, begin + 1)) if index < len(new)]
            found += [line for line in lines if new[line - 1].strip() and not new[line - 1].startswith("# cell [")]
    return found


def _detail(name: str, before: bytes, after: bytes) -> tuple[str, ...]:
    return () if name.startswith(f"{CAPTURED}/") else _unified(before, after)  # of those only digests are here


def _unified(before: bytes, after: bytes) -> tuple[str, ...]:
    if max(len(before), len(after)) > LARGEST:
        return (f"{len(before):,} bytes, now {len(after):,}",)
    try:
        old, new = (_MARK.sub("", text.decode()).splitlines() for text in (before, after))
    except UnicodeDecodeError:
        return (f"{len(before):,} bytes, now {len(after):,}",)
    lines = [line for line in difflib.unified_diff(old, new, "", "", lineterm="", n=2) if line.strip("+-")]
    left = len(lines) - LINES
    return (*lines[:LINES], *([f"... {left:,} lines more"] if left > 0 else []))

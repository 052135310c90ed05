"""Parse named numbers in printed text: `Epoch 3: loss=0.12 acc: 97.3%` has a loss of 0.12 and an acc of 97.3.

Only numbers that follow a name are used. Counters (epoch, step, batch), times, speeds and sizes are left out. The work
is bounded whatever the text is, as it is done in the thread that trains.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from kernel_backend.definition.reported.vocabulary import COUNTERS, GROUP, METRIC, UNGROUPED
from kernel_backend.model.values import cleaned

LONGEST_LINE = 2_000  # characters; longer lines are not looked at
_MOST_TEXT = 8 * LONGEST_LINE  # characters at the end of a text that are looked at
_MOST_NUMBERS = 24  # in a line; those after them are not looked at
_BEHIND, _AHEAD = 100, 3  # characters before and after a number that are looked at
_LETTER = r"[^\W\d_]"
_SYLLABLE = r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"  # of scripts in which words are written without spaces
# Signs of East Asian texts, such as a full-width colon, and what is written for them elsewhere.
_WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | str.maketrans(
    "\u3000\u3001\u3010\u3011\u300c\u300d", " ,[][]"
)
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d|\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?\b(?!\s*%)")
_BAR = re.compile(r"it/s|s/it|\u2588|\[=|(?<!=)=+>?\.*\]|(?<!-)-{4,}>?\]|\?it")
_RANGE = re.compile(r"(@\d+(?:\.\d+)?):(?=\d)")  # within a name: mAP@0.5:0.95
_HAS_NUMBER = re.compile(r"\d|nan|inf", re.IGNORECASE)
_NUMBER = re.compile(
    rf"(?=[-+.\dnNiI])(?:(?<![\w.@])(?<!\w-)|(?<={_SYLLABLE}))"
    r"(?P<value>[-+]?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.(?:\d+|(?!\.)))?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)"
    rf"|[-+]?(?:nan|inf)(?!\w))(?:\s*/\s*(?P<of>\d[\d,]*)(?![\d.]))?(?P<unit>\s?%|{_LETTER}\w*|/{_LETTER}+)?",
    re.IGNORECASE,
)
# How torch and numpy show a number: `tensor(0.9)`, `np.float64(0.9)`.
_WRAPPED = r"\btensor\(|\b(?:np\.|numpy\.)?(?:float|int)\d+\("
_WRAPPED_END = re.compile(rf"(?:{_WRAPPED})$")
_END = re.compile(rf"(?:\s*(?:[:=~(\[\"']|-+>|=>|{_WRAPPED}|\bis\b|\bof\b|\bat\b|\bwas\b|\bby\b))*\s*$", re.IGNORECASE)
# Words that are abbreviated by a dot, which ends no sentence.
_SHORT = "".join(rf"(?<!\b{word})" for word in ("val", "valid", "tr", "avg", "ave", "max", "min", "std", "acc", "prec"))
_START = re.compile(
    rf".*(?:[,;|\t]|[\])}}](?=.*{_LETTER})|\s-+\s|\s/\s|\.\.+|\s{{3,}}|{_LETTER}{_SHORT}\.\s)",
    re.DOTALL | re.IGNORECASE,
)
_LEVEL = re.compile(r"\b(?:DEBUG|INFO|WARNING|ERROR)\b[\s:|-]*")
_PHRASE = re.compile(
    r"\s(?:after|over|on|in|at|for|from|to|with|than|of\s+the)\b.*|\s(?:after|over|at|for|from|to)$", re.IGNORECASE
)
_RATE = re.compile(
    r"(?:^|[^a-z])(?:ms|s|secs?|tok|tokens|samples|img|images|it|step|batch)/|/(?:s|secs?|second|batch|step|it)\b"
)
_SHORTEST, _LONGEST = 2, 40  # characters of a name
_WORDS = 4  # longest label that is used unchanged, in words


class _Found(NamedTuple):
    name: str
    value: float
    group: str  # word of its name such as `train` or `val`; "" if it has none


def labelled(text: str) -> dict[str, float]:
    """Return the named numbers in a text; of a name that occurs in several lines, the last number.

    Names are in lower case, with `_` between words. A heading such as `Validation:` becomes a prefix of the names that
    follow: `Val: loss 0.3` has a `val_loss`.

    Examples
    --------
    >>> labelled("Epoch [3/10], Step [100/600], Loss: 0.2513")
    {'loss': 0.2513}
    >>> labelled("Train: loss 0.31 acc 0.90 | Val: loss 0.42 acc 0.87")
    {'train_loss': 0.31, 'train_acc': 0.9, 'val_loss': 0.42, 'val_acc': 0.87}
    """
    found: dict[str, float] = {}
    heading = ""
    lines = text[-_MOST_TEXT:].splitlines()
    for line in lines[len(text) > _MOST_TEXT :]:  # the first one may be cut
        if len(line) > LONGEST_LINE or _BAR.search(line):
            continue
        numbers, heading = _of_line(_plain(line), heading)
        found |= _grouped(numbers)
    return found


def _plain(line: str) -> str:
    """Return the line without colours, times and log levels, with Latin signs for those of East Asia."""
    if not line.isascii():
        line = unicodedata.normalize("NFC", line.translate(_WIDE))
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "@" in line:
        line = _RANGE.sub(r"\1_", line)
    return _LEVEL.sub("", _CLOCK.sub("", line))


def _of_line(line: str, heading: str) -> tuple[list[_Found], str]:
    found: list[_Found] = []
    begin = looked = 0
    for number in _NUMBER.finditer(line) if _HAS_NUMBER.search(line) else ():
        if number.start() < begin:
            continue
        looked += 1
        if looked > _MOST_NUMBERS:
            break
        before = line[max(begin, number.start() - _BEHIND) : number.start()]
        after = line[number.end() : number.end() + _AHEAD]
        label = _label(before, after, heading)
        if label is None:
            continue
        begin = number.end()
        name, group, heading = label
        value, of, unit = number.group("value", "of", "unit")
        if name and (unit is None or unit.strip() == "%"):
            found.append(_Found(name, _value(value, of), group))
    rest = line[begin:].strip()
    alone = not found and rest.endswith(":")
    return found, _heading(rest[-_BEHIND:]) or heading if alone else ""


def _grouped(numbers: list[_Found]) -> dict[str, float]:
    """Return the numbers of a line by name, with those of training and of validation apart.

    In `train loss 0.5 acc 0.9 | val loss 0.6 acc 0.8`, a name without a group has that of the names before it, if
    another group follows or the name is repeated. Numbers that share a name nevertheless are left out.
    """
    if len({each.name for each in numbers}) == len(numbers) and not any(each.group for each in numbers):
        return {each.name: each.value for each in numbers}
    groups = [each.group for each in numbers]
    named: list[_Found] = []
    group = ""
    for index, each in enumerate(numbers):
        group = each.group or group
        repeated = any(each.name == other.name for other in numbers[:index])
        belongs = repeated or any(groups[index + 1 :])
        if group and not each.group and belongs and each.name not in UNGROUPED:
            each = each._replace(name=f"{group}_{each.name}")
        named.append(each)
    counts = Counter(each.name for each in named)
    return {each.name: each.value for each in named if counts[each.name] == 1}


@lru_cache(maxsize=1024)
def _label(before: str, after: str, heading: str) -> tuple[str, str, str] | None:
    """Return the name of a number, the group in it, and the heading of the names that follow; None if it has no label.

    `before` and `after` are the texts around the number. They are the same in each step, so that answers are kept.
    """
    if _is_within_phrase(before) or _is_first_of_list(before, after) or _is_in_name(before, after):
        return None
    parts = _END.sub("", before).split(":")
    for each in parts[:-1]:
        heading = _heading(each) or heading
    name = _name(parts[-1], heading)
    counts = after.lstrip().startswith("[") and GROUP.fullmatch(name)  # Train: 3 [120/500]
    if counts or (after.startswith(",") and after[1:2].isdigit()):  # 0,5 is a number or two
        name = ""
    group = GROUP.search(name)
    return name, group[0] if group else "", heading


def _is_within_phrase(text: str) -> bool:
    """Return True if the next number belongs to a phrase, as 10000 does in `accuracy on the 10000 test images: 0.9`.

    `text` is the text before that number.
    """
    return _PHRASE.search(text.rstrip()) is not None and text.rstrip()[-1:] not in (":", "=")


def _is_first_of_list(before: str, after: str) -> bool:
    """Return True if a number is the first of several in brackets; of these, none is the value of a name."""
    wrapped = _WRAPPED_END.search(before)
    if wrapped:
        before, after = before[: wrapped.start()], after.removeprefix(")")
    return before.rstrip().endswith("[") and not after.startswith("]")


def _is_in_name(before: str, after: str) -> bool:
    """Return True if a number begins a name, as in `1-NN 0.9`, and is no counter, as in `epoch 1-loss 0.9`."""
    words = re.findall(f"{_LETTER}+", before)
    return re.match(f"-{_LETTER}", after) is not None and not (words and words[-1].lower() in COUNTERS)


def _clause(text: str) -> str:
    """Return the text after the last sign that ends a clause, such as a comma."""
    start = _START.match(text)
    return text[start.end() :] if start else text


def _heading(text: str) -> str:
    """Return the prefix that a heading gives to the names after it, as `val` for `| Val set`; "" for other text."""
    group = GROUP.search(_clause(text))
    return group[0].lower() if group else ""


def _name(text: str, heading: str) -> str:
    """Return the name of a number, given by the `text` before it; "" if it has none, or is a counter or a time."""
    label = _clause(text).strip(" \t'\"#*>-:=.[({")
    label = re.sub(r"\.(?:item|mean|detach|cpu|numpy)\(\)?", "", label)
    if _RATE.search(label.lower()):
        return ""
    if label.count("[") > label.count("]"):  # inside a list of numbers
        return ""
    head = _PHRASE.sub("", label)
    words = head.replace("_", " ").split()
    if not words or len(label) < _SHORTEST or not re.search(_LETTER, label) or words[-1].lower() in COUNTERS:
        return ""
    group, metric = GROUP.search(label), METRIC.search(head.replace("_", " "))
    if len(words) > _WORDS:
        if metric is None:
            return ""
        head = metric[0]
    if group and not GROUP.search(head):
        head = f"{group[0]} {head}"
    name = cleaned(re.sub(rf"(?<={_LETTER})\.\s", " ", head))  # abbreviated, as in `Val. Loss`
    if heading and not GROUP.search(name):
        name = f"{heading}_{name}"
    return name if len(name) <= _LONGEST else ""


def _value(text: str, of: str | None) -> float:
    """Return the number in `text`. `of` has the number after a slash, if there is one: for `9823/10000`, return 0.9823.

    If the two numbers are no count and its total, as in `0.5/10`, return the first.
    """
    number = float(text.replace(",", ""))
    if of is None:
        return number
    whole = float(of.replace(",", ""))
    return number / whole if whole and 0 <= number <= whole and number.is_integer() else number

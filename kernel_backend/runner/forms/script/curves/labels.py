"""Parse named numbers in printed text: `Epoch 3: loss=0.12 acc: 97.3%` has a loss of 0.12 and an acc of 97.3.

Only numbers that follow a name are used. Counters (epoch, step, batch), times, speeds and sizes are left out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d|\b\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?\b(?!\s*%)")
_BAR = re.compile(r"it/s|s/it|\u2588|\[=+|=+>?\.*\]|-{4,}>?\]|\?it")
_NUMBER = re.compile(
    r"(?<![\w.@])(?<![A-Za-z]-)(?P<value>[-+]?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.(?:\d+|(?!\.)))?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)"
    r"|[-+]?(?:nan|inf)(?!\w))(?:\s*/\s*(?P<of>\d[\d,]*)(?![\d.]))?(?P<unit>\s?%|[A-Za-z]\w*|/[A-Za-z]+)?",
    re.IGNORECASE,
)
# How torch and numpy show a number: `tensor(0.9)`, `np.float64(0.9)`.
_WRAPPED = r"\btensor\(|\b(?:np\.|numpy\.)?(?:float|int)\d+\("
_END = re.compile(rf"(?:\s*(?:[:=~(\[\"']|-+>|=>|{_WRAPPED}|\bis\b|\bof\b|\bat\b|\bwas\b|\bby\b))*\s*$", re.IGNORECASE)
# Words that are abbreviated by a dot, which ends no sentence.
_SHORT = "".join(rf"(?<!\b{word})" for word in ("val", "valid", "tr", "avg", "ave", "max", "min", "std", "acc", "prec"))
_START = re.compile(
    rf".*(?:[,;|\t]|[\])}}](?=.*[A-Za-z])|\s-+\s|\s/\s|\.\.+|\s{{3,}}|[A-Za-z]{_SHORT}\.\s)", re.DOTALL | re.IGNORECASE
)
_LEVEL = re.compile(r"\b(?:DEBUG|INFO|WARNING|ERROR)\b[\s:|-]*")
_PHRASE = re.compile(
    r"\s(?:after|over|on|in|at|for|from|to|with|than|of\s+the)\b.*|\s(?:after|over|at|for|from|to)$", re.IGNORECASE
)
_SPLIT = re.compile(r"\b(train(?:ing)?|val(?:id(?:ation)?)?|test(?:ing)?|eval(?:uation)?|dev)\b", re.IGNORECASE)
_METRIC = re.compile(
    r"\b(loss(?:es)?|acc(?:uracy)?|f1|auc|auroc|bleu|rouge|perplexity|ppl|error|precision|recall|iou|dice|mse|mae|rmse|"
    r"r2|psnr|ssim|wer|cer|map|reward|return|score|fid|elbo|kl)\b",
    re.IGNORECASE,
)
# fmt: off
_COUNTERS = frozenset({
    "a", "and", "arch", "batch", "batches", "best_epoch", "candidate", "classes", "cuda", "cycle", "data", "device",
    "dim", "dt", "elapsed", "ep", "episode", "episodes", "epoch", "epochs", "eta", "fold", "folds", "generation", "gpu",
    "hour", "hours", "idx", "images", "index", "it", "iter", "iteration", "iterations", "iters", "layer", "layers",
    "line", "mem", "member", "memory", "min", "mins", "minute", "minutes", "ms", "or", "parameter", "parameters",
    "params", "patience", "phase", "port", "rank", "round", "rounds", "run", "runs", "s", "sample", "samples", "sec",
    "second", "seconds", "secs", "seed", "size", "speed", "stage", "step", "steps", "the", "throughput", "time",
    "times", "tokens", "took", "trial", "update", "updates", "version", "worker", "workers",
})
# fmt: on
_RATE = re.compile(
    r"(?:^|[^a-z])(?:ms|s|secs?|tok|tokens|samples|img|images|it|step|batch)/|/(?:s|secs?|second|batch|step|it)\b"
)
_SHORTEST, _LONGEST = 2, 40  # characters of a name
_WORDS = 4  # longest label that is used unchanged, in words


class _Found(NamedTuple):
    name: str
    value: float


def labelled(text: str) -> dict[str, float]:
    """Return the named numbers in a text; of a name that occurs twice, the last number.

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
    for line in _ANSI.sub("", text).splitlines():
        if _BAR.search(line):
            continue
        names, heading = _of_line(_LEVEL.sub("", _CLOCK.sub("", line)), heading)
        found |= {each.name: each.value for each in names}
    return found


def _of_line(line: str, heading: str) -> tuple[list[_Found], str]:
    found: list[_Found] = []
    begin = 0
    for number in _NUMBER.finditer(line):
        if number.start() < begin:
            continue
        before = line[begin : number.start()]
        after = line[number.end() :]
        if _is_within_phrase(before) or _is_first_of_list(before, after) or _is_in_name(before, after):
            continue
        begin = number.end()
        parts = _END.sub("", before).split(":")
        for each in parts[:-1]:
            heading = _heading(each) or heading
        name = _name(parts[-1], heading)
        unit = (number["unit"] or "").strip()
        counts = after.lstrip().startswith("[") and _SPLIT.fullmatch(name)  # Train: 3 [120/500]
        if name and unit in ("", "%") and not counts:
            value = _value(number["value"], number["of"])
            if value is not None:
                found.append(_Found(name, value))
        elif name and unit:
            begin = number.end()
    rest = line[begin:].strip()
    alone = not found and rest.endswith(":")
    return found, _heading(rest) or heading if alone else ""


def _is_within_phrase(text: str) -> bool:
    """Return True if the next number belongs to a phrase, as 10000 does in `accuracy on the 10000 test images: 0.9`.

    `text` is the text before that number.
    """
    return _PHRASE.search(text.rstrip()) is not None and text.rstrip()[-1:] not in (":", "=")


def _is_first_of_list(before: str, after: str) -> bool:
    """Return True if a number is the first of several in brackets; of these, none is the value of a name."""
    wrapped = re.search(rf"(?:{_WRAPPED})$", before)
    if wrapped:
        before, after = before[: wrapped.start()], after.removeprefix(")")
    return before.rstrip().endswith("[") and not after.startswith("]")


def _is_in_name(before: str, after: str) -> bool:
    """Return True if a number begins a name, as in `1-NN 0.9`, and is no counter, as in `epoch 1-loss 0.9`."""
    words = re.findall(r"[A-Za-z]+", before)
    return re.match(r"-[A-Za-z]", after) is not None and not (words and words[-1].lower() in _COUNTERS)


def _heading(text: str) -> str:
    """Return the prefix that a heading gives to the names after it, as `val` for `| Val set`; "" for other text."""
    split = _SPLIT.search(_START.sub("", text))
    return split[1].lower() if split else ""


def _name(text: str, heading: str) -> str:
    """Return the name of a number, given by the `text` before it; "" if it has none, or is a counter or a time."""
    label = _START.sub("", text).strip(" \t'\"#*>-:=.[({")
    label = re.sub(r"\.(?:item|mean|detach|cpu|numpy)\(\)?", "", label)
    if _RATE.search(label.lower()):
        return ""
    if label.count("[") > label.count("]"):  # inside a list of numbers
        return ""
    head = _PHRASE.sub("", label)
    words = head.replace("_", " ").split()
    if not words or len(label) < _SHORTEST or not re.search(r"[A-Za-z]", label) or words[-1].lower() in _COUNTERS:
        return ""
    split, metric = _SPLIT.search(label.replace("_", " ")), _METRIC.search(head.replace("_", " "))
    if len(words) > _WORDS:
        if metric is None:
            return ""
        head = metric[1]
    if split and not _SPLIT.search(head.replace("_", " ")):
        head = f"{split[1]} {head}"
    label = head
    label = re.sub(r"(?<=[A-Za-z])\.\s", " ", label)  # abbreviated, as in `Val. Loss`
    name = re.sub(r"[^a-z0-9@/.%_-]+", "_", label.lower()).strip("_-./")
    if heading and not _SPLIT.search(name.replace("_", " ")):
        name = f"{heading}_{name}"
    return name if len(name) <= _LONGEST else ""


def _value(text: str, of: str | None) -> float | None:
    """Return the number in `text`. `of` has the number after a slash, if there is one: for `9823/10000`, return 0.9823.

    If the two numbers are no count and its total, as in `0.5/10`, return the first.
    """
    number = float(text.replace(",", ""))
    if of is None:
        return number
    whole = float(of.replace(",", ""))
    return number / whole if whole and 0 <= number <= whole and number.is_integer() else number

"""Represent a shell command such as `python train.py --lr {lr}`, which is stored in the last line of a definition."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from kernel_backend.model.record import Record, Value

MARK = "__dlcommand__"  # assigned by the definition's last line
CHECKPOINTS = "checkpoints"  # {checkpoints} is the trial's folder, not a hyperparameter
PYTHON = "python"  # as the first argument: the job's own interpreter
# `{{name}}` is the escaped text {name}, and `${name}` is a shell variable.
_PLACEHOLDER = re.compile(r"\{\{(?P<text>[A-Za-z_]\w*)\}\}|(?<!\$)\{(?P<name>[A-Za-z_]\w*)\}")
# A hyperparameter's value, written as a NUL, next to what makes a path or a file's name, or the trial's own folder.
_PATH_OF_TRIAL = re.compile(r"\0[\w\0-]*[./]\w|[\w.][-_/]\0|/\0|\x01")


class Command(Record):
    """Words of a shell command, with the index of the word that names the program's file."""

    words: tuple[str, ...]
    at: int | None = None  # index of the argument that names a file of the snapshot
    program: str | None = None  # path of that file, relative to the project's root
    module: bool = False  # `python -m`: a module, found on the module path
    taken: bool = False  # Daylight runs its training loop, in a process of the job
    why: str = ""  # for a Python program, the reason why `taken` is False

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the hyperparameters, in the order of their placeholders, such as `{lr}`."""
        found = (each["name"] for word in self.words for each in _PLACEHOLDER.finditer(word))
        return tuple(dict.fromkeys(name for name in found if name and name != CHECKPOINTS))

    @property
    def names_a_place_per_trial(self) -> bool:
        """Return True if a path in the words differs between trials, as `runs/{lr}` and `{checkpoints}` do."""
        return any(_PATH_OF_TRIAL.search(_PLACEHOLDER.sub(_marked, word)) for word in self.words)

    @property
    def arguments(self) -> int:
        """Return the index of the first word after the program's file or module."""
        return self.words.index("-m") + 2 if self.module else (self.at or 0) + 1

    def filled(self, values: Mapping[str, Value], checkpoints: str) -> list[str]:
        """Return the words with `{name}` replaced by its value in `values`, and the escaped `{{name}}` by `{name}`.

        `checkpoints` is the value of the placeholder for the checkpoint folder.
        """
        texts = {**{name: _text(value) for name, value in values.items()}, CHECKPOINTS: checkpoints}

        def text(found: re.Match[str]) -> str:
            return f"{{{found['text']}}}" if found["text"] else texts[found["name"]]

        return [_PLACEHOLDER.sub(text, word) for word in self.words]

    def __str__(self) -> str:
        """Return the arguments as one line, with quotes around those that contain spaces."""
        return joined(self.words)


def joined(words: Iterable[str]) -> str:
    """Join words to one line, with single quotes around those that a shell or a magic would split."""
    return " ".join(word if re.fullmatch(r"[\w@%+=:,./{}-]+", word) else _quoted(word) for word in words)


def marked(source: str, command: Command) -> str:
    """Return the program's source (which may be empty) with the command appended as its last line."""
    fields = command.model_dump(exclude_defaults=True)
    line = f"{MARK} = {fields | {'words': list(command.words)}!r}\n"
    return f"{source.rstrip()}\n\n{line}" if source.strip() else line


def unmarked(source: str) -> str:
    """Return a definition's source without the line that holds a command, if it has one."""
    kept = source.rstrip()
    before, _, last = kept.rpartition("\n")
    return before.rstrip() if last.startswith(f"{MARK} = ") else kept


def command_of(tree: ast.Module) -> Command | None:
    """Return the shell command in the last statement of a training definition; None if there is none."""
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Assign) or not _is_mark(last.targets[0]):
        return None
    try:
        return Command.model_validate(ast.literal_eval(last.value))
    except (ValueError, TypeError, ValidationError):
        return None


def _is_mark(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == MARK


def _marked(found: re.Match[str]) -> str:
    return found["text"] or ("\x01" if found["name"] == CHECKPOINTS else "\0")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'"

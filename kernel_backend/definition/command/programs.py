"""Find the program in a command's arguments: a Python file, a module, a shell script or an executable."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple

from kernel_backend.definition.command_line import CHECKPOINTS, PYTHON, joined
from kernel_backend.errors import InvalidRequest

SEPARATOR = "--"  # between the options of a submission and the command
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
_OWN = frozenset({"python", "python3", f"python3.{sys.version_info.minor}"})  # names of the job's own interpreter
_UNSEEN = re.compile(r"-[uB]+")  # options that do not affect what a program computes
_MODULE = ("-m", "--module")
_SHELLS = frozenset({"bash", "sh", "dash", "zsh"})
# Programs that start the ranks of a training; Daylight starts them instead, with the same variables.
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec"})
_LAUNCHING_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"})
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)  # of the environment, before a program
_DEVICES = ("CUDA_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=")
# What only a shell understands: an operator, or a file to which output goes.
_OF_SHELLS = re.compile(r"\||\|\||&&|&|;|<|[12&]?>>?(&1|[\w./-]*[A-Za-z_][\w./-]*)?")
_WITH_VALUE = frozenset({"-W", "-X", "-o"})  # options of interpreters whose value is the next argument

Kind = Literal["python", "module", "shell", "executable"]


class Program(NamedTuple):
    """Arguments of a command without its launcher, with the index of the argument that names the program."""

    words: tuple[str, ...]
    kind: Kind
    at: int | None  # None: no argument names it, as in `python -c CODE`
    dropped: tuple[str, ...] = ()  # arguments of a launcher

    @property
    def own_process(self) -> str | None:
        """Return why this program needs a process of its own; None if a process of the job can run it.

        The reason is "" for a program that is not in Python.
        """
        if self.dropped:
            launcher = self.dropped[2] if self.dropped[1:2] == ("-m",) else self.dropped[0]
            return f"{launcher} starts programs that wire their ranks themselves"
        if _PYTHON.fullmatch(self.words[0].rpartition("/")[2]) is None:
            return ""
        if self.words[0] != PYTHON:
            return f"{self.words[0]} is another interpreter than the job's, {sys.executable}"
        if self.at is None:
            return "its code is in the line itself"
        if any(f"{{{CHECKPOINTS}}}" in word for word in self.words):
            return "the line names {checkpoints}, for checkpoints of its own"
        options = [each for each in self.words[1 : self.at] if each != "-m" and not _UNSEEN.fullmatch(each)]
        return f"{joined(options)} needs an interpreter of its own" if options else None


def split_words(words: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Split the words of a submission line at the first `--`; the second list is None if there is no `--`."""
    if SEPARATOR not in words:
        return list(words), None
    at = list(words).index(SEPARATOR)
    return list(words[:at]), list(words[at + 1 :])


def starts_program(word: str) -> bool:
    """Return True if a word such as `python`, `torchrun` or `bash` starts a program, which the words after it name."""
    return _is_python(word) or word in _LAUNCHERS or word in _SHELLS


def program_of(words: Sequence[str]) -> Program:
    """Return the program that a command starts.

    Arguments of a launcher, such as `torchrun --nproc_per_node 2`, are dropped. An interpreter named by a path, or of
    another version, stays the first argument; any other `python` is replaced by the job's interpreter. Raises
    InvalidRequest for an empty command, for a launcher or an interpreter without a program, and for a line of shell.
    """
    if not words:
        raise InvalidRequest("nothing follows --: write the command there, such as -- python train.py --lr {lr}")
    if shell := next(filter(_OF_SHELLS.fullmatch, words), None):
        raise InvalidRequest(
            f"{shell} is for a shell, and none reads this line: what the program prints is in its log; leave {shell} "
            f"out, or write -- bash -c '{' '.join(words)[:500]}'"
        )
    if words[0].startswith(_DEVICES):
        raise InvalidRequest(
            f"{words[0]}: each slot has its own devices: leave it out, and write --slots N before the --"
        )
    if _VARIABLE.fullmatch(words[0]):
        words = ["env", *words]
    launched = _launched(words)
    own, dropped = tuple(words[launched:]), tuple(words[:launched])
    if own[0].endswith(".py") or own[0] in _MODULE:
        own = (words[0] if dropped and _is_python(words[0]) else PYTHON, *own)
    if _is_python(own[0]):
        return _of_python((PYTHON, *own[1:]) if own[0] in _OWN else own, dropped)
    if own[0].rpartition("/")[2] in _SHELLS:
        return Program(own, "shell", _first_word(own), dropped)
    return Program(own, "executable", 0, dropped)


def _launched(words: Sequence[str]) -> int:
    """Return the index of the first word after a launcher, such as `torchrun`, and its options; 0 if there is none."""
    name = words[0].rpartition("/")[2]
    of_python = _is_python(name) and words[1:2] == ["-m"] and words[2:3] and words[2] in _LAUNCHING_MODULES
    if not of_python and name not in _LAUNCHERS:
        return 0
    for index in range(3 if of_python else 1, len(words)):
        word = words[index]
        if word.endswith(".py") or _is_python(word) or word in _MODULE:
            return index
    raise InvalidRequest(
        f"{joined(words)[:200]}: {name} starts ranks, and Daylight starts a process per slot by itself: name a Python "
        "program, as in --slots 2 -- python train.py"
    )


def _is_python(word: str) -> bool:
    return _PYTHON.fullmatch(word.rpartition("/")[2]) is not None


def _of_python(words: tuple[str, ...], dropped: tuple[str, ...]) -> Program:
    at = _first_word(words)
    if at is not None:
        return Program(words, "python", at, dropped)
    for index, word in enumerate(words[:-1]):
        if word in _MODULE:
            return Program((*words[:index], "-m", *words[index + 1 :]), "module", index + 1, dropped)
        if word == "-c":
            return Program(words, "executable", None, dropped)
    raise InvalidRequest(f"{joined(words)}: this names no program: write python train.py, or python -m pkg.train")


def _first_word(words: Sequence[str]) -> int | None:
    """Return the index of the first word after an interpreter's options; None for `-c` code or a `-m` module."""
    index = 1
    while index < len(words):
        word = words[index]
        if word in _MODULE or re.fullmatch(r"-[a-zA-Z]*c", word):
            return None
        if not word.startswith("-"):
            return index
        index += 2 if word in _WITH_VALUE else 1
    return None

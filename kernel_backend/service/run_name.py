"""Name a run without a name of its user by what is submitted, and by what differs from an earlier run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TypeAlias, TypeVar

from kernel_backend.model.experiment import LONGEST_NAME, Config, Experiment, Submission
from kernel_backend.model.values import listed, written
from kernel_backend.spec.config_text import written_options
from kernel_backend.store.base import NewExperiment

LOOKED_AT = 20  # earlier runs among which that of the same cell is looked for
MOST = 3  # changes that a name lists
LONGEST = 24  # characters of a value in a name
NEW_CODE, AGAIN = "new code", "again"
_CHOSEN_BY_SERVICE = {"--threads"}
_SEARCH = "--search"


Run: TypeAlias = Submission | NewExperiment | Experiment
R = TypeVar("R", Submission, NewExperiment, Experiment)


def base_name(program: str, notebook: str | None) -> str:
    """Return the first part of a run's name: the submitted program, else the notebook's file without its suffix."""
    return program or PurePath(notebook or "").stem


def previous_run(run: Run, earlier: Sequence[R]) -> R | None:
    """Return which of the `earlier` runs of a notebook, newest first, was most likely submitted by the same cell.

    It is the newest with the same hyperparameters, whatever their values, else the newest; None if there is none.
    """
    names = _values(run).keys()
    return next((each for each in earlier if _values(each).keys() == names), next(iter(earlier), None))


def changes(before: Run, after: Run) -> list[str]:
    """Return the hyperparameters, then the options, whose values differ, with the newer values: `lr 0.003`, `no amp`.

    Examples
    --------
    >>> run = Submission(snapshot="", python="", cwd="", params={"lr": 0.1, "width": 8})
    >>> changes(run, run.model_copy(update={"params": {"lr": 0.003, "width": 8}, "config": Config(epochs=5)}))
    ['lr 0.003', 'epochs 5']
    """
    old, new = _values(before), _values(after)
    values = [f"{name} {_short(text)}" for name, text in new.items() if text != old.get(name)]
    return [*values, *_changed_options(_options(before.config), _options(after.config))]


def named(base: str, changed: Sequence[str]) -> str:
    """Return a run's name: `quickstart: lr 0.003`, with the first changes if there are many.

    Examples
    --------
    >>> named("rerun of #6", ["lr 0.003", "width 64", "epochs 9", "seed 1", "clip 1.0"])
    'rerun of #6: lr 0.003, width 64, epochs 9 and 2 more'
    """
    text = f"{base}: {listed(changed, MOST)}" if changed else base
    return text[:LONGEST_NAME]


def _values(run: Run) -> dict[str, str]:
    domains = {each.label: str(each).removeprefix(f"{each.label}=") for each in run.space.parameters}
    return {name: written(value) for name, value in run.params.items()} | domains


def _options(config: Config) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for flag, *words in written_options(config):
        found.setdefault(flag, []).extend(words)
    return {flag: " ".join(words) for flag, words in found.items() if flag not in _CHOSEN_BY_SERVICE}


def _changed_options(old: dict[str, str], new: dict[str, str]) -> list[str]:
    changed = [f"{_word(flag)} {_short(text)}".strip() for flag, text in new.items() if text != old.get(flag)]
    if _SEARCH in old and _SEARCH not in new:  # its options are gone with it
        return [*changed, "no search"]
    return changed + [f"no {_word(flag)}" for flag in old if flag not in new]


def _word(flag: str) -> str:
    return flag.removeprefix("--").replace("-", " ")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."

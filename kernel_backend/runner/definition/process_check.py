"""Compare settings of a job's process (such as torch's, and environment variables) with those in the notebook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kernel_backend.model.snapshot import DEFINITION, Process
from kernel_backend.runner.definition.load import read_snapshot
from kernel_backend.snapshots.process import SETTINGS, cell_of, exists, process
from kernel_backend.snapshots.random_states import SEEDING, random_digests

WAY_OUT = (
    "what a function of a module, exec() or %run sets does not travel: write it in the submitted cell or in one before "
    "it, or add --no-state-check to go on with the job's"
)


class Difference(NamedTuple):
    """Setting that differs between job and notebook, described in a sentence.

    If `refuses` is True, training must not start.
    """

    text: str
    refuses: bool = True


class ProcessCheck:
    """Comparison of settings of this process, such as torch's, with those in the notebook at submission.

    Create it before the user's code is loaded.
    """

    def __init__(self, notebook: Process | None, cell: str) -> None:
        """Record the settings of this process before the definition (the user's code) is loaded.

        `notebook` has the settings recorded at submission, None if there are none; `cell` is the submitted cell's text.
        """
        self._cell = cell
        self._compares, self._notebook = notebook is not None, notebook or Process()
        self._start = self._before = self._look()
        self._random = random_digests(self._notebook.random)

    def cell_begins(self) -> None:
        """Record this process's settings after the code of earlier cells has run, before the submitted cell runs."""
        self._before = self._look()
        self._random = random_digests(self._notebook.random)

    def differences(self) -> list[Difference]:
        """Return the settings that differ between job and notebook and that the submitted cell does not set."""
        after = self._look()
        if not self._compares:
            return []
        found = (self._settings(after), self._variables(after), self._replaced(after), self._random_states())
        return [each for differences in found for each in differences]

    def _look(self) -> Process:
        return process(self._notebook.variables) if self._compares else Process()

    def _settings(self, after: Process) -> Iterator[Difference]:
        for name, setting in SETTINGS.items():
            job = self._before.settings.get(name)
            notebook = self._notebook.settings.get(name, self._start.settings.get(name, setting.begins))
            unlike = job is not None and job != notebook and job == after.settings.get(name)
            if job is not None and unlike and not setting.is_set_in(self._cell):
                yield Difference(_differs(name, notebook, job, setting.line(notebook)), setting.refuses)

    def _variables(self, after: Process) -> Iterator[Difference]:
        for name, notebook in self._notebook.variables.items():
            job = self._before.variables[name]
            if job != notebook and job == after.variables[name]:
                path = f"os.environ[{name!r}]"
                line = f"os.environ.pop({name!r}, None)" if notebook is None else f"{path} = {notebook!r}"
                yield Difference(_differs(path, _shown(notebook), _shown(job), line))

    def _replaced(self, after: Process) -> Iterator[Difference]:
        for path, notebook in self._notebook.replaced.items():
            job = self._before.replaced.get(path)
            if job != notebook and job == after.replaced.get(path) and exists(path):
                by = notebook if "<" not in notebook else "..."  # <lambda>, <locals>
                yield Difference(_differs(path, notebook, job or "the library's own", f"{path} = {by}"))

    def _random_states(self) -> Iterator[Difference]:
        for package, notebook in self._notebook.random.items():
            if self._random.get(package) != notebook:
                text = (
                    f"the state of {package}'s random generator is not the notebook's where the submitted cell begins, "
                    "so what the cell itself draws is not, either. To draw the same in both, add the line "
                    f"{SEEDING.get(package, 'that seeds it')} above the draw"
                )
                yield Difference(text, refuses=False)


def process_check(code: Path) -> ProcessCheck:
    """Return the comparison for the snapshot in folder `code`; call this before the definition is loaded."""
    snapshot = read_snapshot(code)
    cell = cell_of((code / DEFINITION).read_text(encoding="utf-8"), snapshot.roles_from) if snapshot else ""
    return ProcessCheck(snapshot.process if snapshot else None, cell)


def _differs(name: str, notebook: str, job: str, line: str) -> str:
    return f"{name} differs: notebook {notebook or 'nothing'}, job {job or 'nothing'}. Add the line: {line}"


def _shown(variable: str | None) -> str:
    return "not set" if variable is None else repr(variable)

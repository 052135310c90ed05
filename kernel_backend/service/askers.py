"""The processes of custom searches: each is asked in the interpreter, and with the code, of its experiment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kernel_backend.errors import SearchFailed
from kernel_backend.launch.asker import ChildAsker
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.record import Value
from kernel_backend.search.settings import settings_of
from kernel_backend.service.preparation import Preparation
from kernel_backend.snapshots.archive import Archive

WITHHELD = ("PYTHONPATH", "PYTHONHOME")  # from a locked environment, as from its ranks


class ExperimentAsker:
    """The class of one experiment; nothing is unpacked or started before the first question."""

    def __init__(self, experiment: Experiment, archive: Archive, preparation: Preparation, home: Path) -> None:
        self._experiment, self._archive, self._preparation = experiment, archive, preparation
        self._folder = home / "searches" / str(experiment.number)
        self._child: ChildAsker | None = None

    def interval(self) -> Any:
        """Its attribute of this name."""
        return self._asked().interval()

    def ask(self, trial: int) -> Any:
        """What its `ask` answers."""
        return self._asked().ask(trial)

    def tell(self, trial: int, params: dict[str, Value], unit: int, value: float) -> Any:
        """What its `tell` answers."""
        return self._asked().tell(trial, params, unit, value)

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.close()

    def _asked(self) -> ChildAsker:
        if self._child is None:
            self._child = self._made()
        return self._child

    def _made(self) -> ChildAsker:
        experiment, code = self._experiment, self._folder / "code"
        python = self._preparation.python(experiment)
        code.mkdir(parents=True, exist_ok=True)
        self._archive.unpack(experiment.snapshot, code)
        cwd = Path(experiment.cwd)
        withheld = WITHHELD if experiment.config.env == "locked" else ()
        env = {name: value for name, value in os.environ.items() if name not in withheld}
        return ChildAsker(
            python,
            code,
            cwd if cwd.is_dir() else code,
            settings_of(experiment.config),
            experiment.space,
            self._folder / "class.log",
            env,
        )


class Silent:
    """Of a search that has failed: its class is told nothing any more."""

    def __init__(self, message: str) -> None:
        self._message = message

    def interval(self) -> Any:
        """Nothing."""
        raise SearchFailed(self._message)

    def ask(self, trial: int) -> Any:
        """Nothing."""
        raise SearchFailed(self._message)

    def tell(self, trial: int, params: dict[str, Value], unit: int, value: float) -> Any:
        """Nothing."""
        raise SearchFailed(self._message)

    def close(self) -> None:
        """There is nothing to end."""

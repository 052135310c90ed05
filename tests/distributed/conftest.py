"""Provide finished trainings that several tests share; each is run once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gang import Trial


class Whole:
    """Trial that was trained without interruption, and its only attempt."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.attempt = trial, trial.run()
        assert set(self.attempt.codes) == {0}, self.attempt.logs()


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Whole]:
    """Provide a function `whole(backend, slots)` that returns the uninterrupted standard training."""
    made: dict[tuple[str, int], Whole] = {}

    def get(backend: str, slots: int) -> Whole:
        if (backend, slots) not in made:
            folder = tmp_path_factory.mktemp(f"{backend}{slots}") / "trial"
            made[backend, slots] = Whole(Trial(folder, backend=backend, slots=slots))
        return made[backend, slots]

    return get


@pytest.fixture
def trial(tmp_path: Path) -> Callable[..., Trial]:
    """Provide a function `trial(slots=2, backend="torch", ...)` that creates a trial in a new folder."""
    return lambda **settings: Trial(tmp_path / "trial", **settings)

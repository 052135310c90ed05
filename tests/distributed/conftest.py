"""Finished trainings that several tests look at: each is run once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gang import Trial


class Whole:
    """A trial that was trained without interruption, and its one attempt."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.attempt = trial, trial.run()
        assert set(self.attempt.codes) == {0}, self.attempt.logs()


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Whole]:
    """`whole(backend, slots)`: the standard training, uninterrupted."""
    made: dict[tuple[str, int], Whole] = {}

    def get(backend: str, slots: int) -> Whole:
        if (backend, slots) not in made:
            folder = tmp_path_factory.mktemp(f"{backend}{slots}") / "trial"
            made[backend, slots] = Whole(Trial(folder, backend=backend, slots=slots))
        return made[backend, slots]

    return get


@pytest.fixture
def trial(tmp_path: Path) -> Callable[..., Trial]:
    """`trial(slots=2, backend="torch", ...)` in a folder of its own."""
    return lambda **settings: Trial(tmp_path / "trial", **settings)

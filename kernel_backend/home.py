"""Where Daylight keeps its files: `DAYLIGHT_HOME`, else a folder under the Jupyter data directory."""

from __future__ import annotations

import os
from pathlib import Path


def _jupyter_data() -> Path:
    """Jupyter's own rule (`jupyter --data-dir` on Linux), written out because a thin kernel may lack jupyter_core."""
    if given := os.environ.get("JUPYTER_DATA_DIR"):
        return Path(given)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "jupyter"


def home() -> Path:
    """The folder, made on first use and readable by its owner alone (0700)."""
    folder = Path(os.environ.get("DAYLIGHT_HOME") or _jupyter_data() / "daylight").expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def attempt_folder(root: Path, key: object) -> Path:
    """Where attempt `12.1-2` keeps its job, spool, logs and outcome."""
    return root / "attempts" / str(key)


def stand_in_folder(root: Path, experiment: int, trial: int) -> Path:
    """Where a trial has its working folder as it was, should files in the real one have changed; of all attempts."""
    return root / "standins" / f"{experiment}.{trial}"


def prepared_folder(root: Path, experiment: int) -> Path:
    """Where it stands on which nodes an experiment's `prepare` has run, for all of its trials."""
    return root / "prepared" / str(experiment)


def artifact_folder(root: Path, experiment: int, trial: int) -> Path:
    """Where the artifacts of a trial are, of all its attempts."""
    return root / "artifacts" / str(experiment) / str(trial)


def checkpoint_folder(root: Path, experiment: int, trial: int) -> Path:
    """Where a trial's checkpoints are, of all its attempts."""
    return root / "checkpoints" / str(experiment) / str(trial)

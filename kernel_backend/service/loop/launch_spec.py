"""Build the launch spec of an attempt."""

from __future__ import annotations

import os
from pathlib import Path

from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.home import attempt_folder
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.resources import LOCAL
from kernel_backend.model.trial import Attempt, Trial


def job_of(
    experiment: Experiment,
    trial: Trial,
    attempt: Attempt,
    python: str,
    pool: str,
    storage: CheckpointStorage,
    home: Path,
    url: str | None,
    urls: tuple[str, ...] = (),
    staged: bool = False,
) -> LaunchSpec:
    """Return the launch spec of an attempt.

    `url` is the service's address, set only if launchers cannot read the service's home; `urls` are those for launchers
    on other nodes; `staged` is set if these do not see the home.
    """
    return LaunchSpec(
        experiment=experiment.number,
        trial=trial.index,
        attempt=attempt.number,
        uid=storage.uid(experiment.number, trial.index),
        config=experiment.config,
        params=trial.params,
        placement=attempt.placement,
        python=python,
        cwd=experiment.cwd,
        code=str(attempt_folder(home, attempt.id) / "code"),
        snapshot=experiment.snapshot,
        checkpoints=storage.where(experiment.number, trial.index),
        rerun=experiment.rerun_of is not None,
        until=trial.until,
        resume_from=attempt.resume_from,
        home=str(home),
        pool="" if pool == LOCAL else pool,
        service_url=url,
        service_uid=os.getuid() if url is not None or urls else None,
        excluded=tuple(sorted(trial.excluded)),
        service_urls=urls if attempt.granted_at is None else (),
        staged=staged,
    )

"""Build the launch spec of an attempt: what launchers need to start its ranks."""

from __future__ import annotations

import os
from pathlib import Path

from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.home import attempt_folder
from kernel_backend.model.cluster.allocations import allocation_length
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.facts import BatchSize, LoaderSetting, known
from kernel_backend.model.ids import parse_reference
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.resources import LOCAL
from kernel_backend.model.trial import Attempt, Trial, parse_beginning
from kernel_backend.model.versions import read
from kernel_backend.store.base import Store


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
    keeps: bool = False,
    loader: LoaderSetting | None = None,
    batch: BatchSize | None = None,
) -> LaunchSpec:
    """Return the launch spec of an attempt: what launchers need to start its ranks with the interpreter `python`.

    `url` is the service's address, set only if launchers cannot read the service's home directory; `urls` are its
    addresses for launchers on other nodes. `staged` is set if the nodes of the pool do not see the home directory,
    `keeps` if searches can keep their jobs or pods in the pool between trials. `loader` is the setting of data loaders
    that an earlier attempt has found, `batch` the batch size that one has found; None if none has.
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
        keep_allocation=allocation_length(experiment.config.search, keeps) or None,  # not 0, as older versions read it
        staged=staged,
        loader=loader,
        batch=batch,
    )


def tuned_loader(store: Store, experiment: Experiment, trial: int) -> LoaderSetting | None:
    """Return the setting of data loaders that `--loader-workers auto` has found before; None if it has found none.

    It is taken from this trial, else from the experiment's first trial, else from the experiment of which it is a
    rerun.
    """
    if experiment.config.loader_workers is not None:
        return None
    places = [(experiment.number, trial), (experiment.number, 1)]
    if experiment.rerun_of is not None:
        places.append((experiment.rerun_of, trial))
    found = (known(store.facts(*place)).get("loader") for place in dict.fromkeys(places))
    return next((read(LoaderSetting, each) for each in found if each is not None), None)


def found_batch(store: Store, experiment: Experiment, trial: Trial) -> BatchSize | None:
    """Return the batch size that `--batch-size auto` has found for this trial; None if it has found none yet.

    The size must not change on a resume. A trial that continues from another trial's checkpoint therefore has that
    trial's batch size, and a rerun has that of the original.
    """
    if experiment.config.auto_batch is None:
        return None
    places = [(experiment.number, trial.index)]
    beginning = parse_beginning(trial.begins_from or "")
    if beginning.trial and not beginning.part:
        origin = parse_reference(beginning.trial)
        places.append((origin.experiment, origin.trial or 1))
    if experiment.rerun_of is not None:
        repeated = store.trials(experiment.rerun_of)
        places += [(each.experiment, each.index) for each in repeated if each.params == trial.params]
        # Of a training with other hyperparameters: the size is a part of what is compared.
        places += [(each.experiment, each.index) for each in repeated[:1] if len(repeated) == 1]
    found = (known(store.facts(*place)).get("batch") for place in dict.fromkeys(places))
    return next((read(BatchSize, each) for each in found if each is not None), None)

"""Delete checkpoints of an experiment by its retention rules: on `daylight gc`, and when the experiment ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kernel_backend.checkpoints import retention
from kernel_backend.checkpoints.base import Checkpoints, Manifest
from kernel_backend.checkpoints.directory import BAD
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.lifecycle.resume import lineage
from kernel_backend.model.checkpoints import CheckpointDecision, GarbageReport
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.states import HOLDING_SLOTS, TRIAL_ENDED
from kernel_backend.model.trial import Trial
from kernel_backend.store.base import Store

WEEK_S = 7 * 86400.0  # for which damaged checkpoints stay in quarantine, for inspection
Damaged = Callable[[Checkpoints, Manifest], bool]


class TrialCheckpoints(NamedTuple):
    """Checkpoints of a trial, oldest first.

    `line` has the ids of the checkpoints from which the present training has come. A checkpoint is not among them if a
    later attempt resumed from an older one, and so discarded it. `registered` has the checkpoints that are versions of
    models, with the reasons to retain them.
    """

    trial: Trial
    place: Checkpoints
    manifests: Sequence[Manifest]
    line: frozenset[str]
    registered: Mapping[str, tuple[str, ...]]


def trial_checkpoints(store: Store, storage: CheckpointStorage, experiment: int) -> list[TrialCheckpoints]:
    """Return the checkpoints of each trial of an experiment, one record per trial in order."""
    found = []
    registered = registered_reasons(store, experiment)
    for trial in store.trials(experiment):
        place = storage.open(experiment, trial.index)
        manifests = place.committed()
        line = lineage(store.attempts(experiment, trial.index), [each.id for each in manifests])
        own = {id: reasons for (index, id), reasons in registered.items() if index == trial.index}
        found.append(TrialCheckpoints(trial, place, manifests, frozenset(line), own))
    return found


def registered_reasons(store: Store, experiment: int) -> dict[tuple[int, str], tuple[str, ...]]:
    """Return why checkpoints of an experiment are retained that are versions of models, by (trial, checkpoint id)."""
    said: dict[tuple[int, str], tuple[str, ...]] = {}
    for each in store.registered(experiment):
        key = each.trial, each.checkpoint
        said[key] = (*said.get(key, ()), f"registered as {each.title}")
    return said


def reasons(
    experiment: Experiment, found: Sequence[TrialCheckpoints], damaged: Damaged
) -> Mapping[tuple[int, str], tuple[str, ...]]:
    """Return the reasons to retain each checkpoint, by (trial, checkpoint id); those without reasons may be deleted.

    Damaged checkpoints, and those that a trial discarded by resuming from an older one, do not count for the rules:
    `latest:2` must retain two usable checkpoints.
    """
    bad = {
        checkpoints.trial.index: {each.id for each in checkpoints.manifests if damaged(checkpoints.place, each)}
        for checkpoints in found
    }
    whole = {
        checkpoints.trial.index: [
            each for each in checkpoints.manifests if each.id in checkpoints.line - bad[checkpoints.trial.index]
        ]
        for checkpoints in found
    }
    may_run = {checkpoints.trial.index for checkpoints in found if checkpoints.trial.state not in TRIAL_ENDED}
    config = experiment.config
    verdicts = retention.decide_retention(whole, config.keep, config.metric, may_run)
    said = {(verdict.manifest.trial, verdict.manifest.id): verdict.reasons for verdict in verdicts}
    for checkpoints in found:
        for each in checkpoints.manifests:
            damage = _damage(each) if each.id in bad[checkpoints.trial.index] else ""
            held = {"pinned": each.pinned, "awaited": each.awaited}
            beside = (damage,) if damage else tuple(reason for reason, holds in held.items() if holds)
            said.setdefault((checkpoints.trial.index, each.id), beside)
            if names := checkpoints.registered.get(each.id):  # whose registration has pinned it
                rules = said[checkpoints.trial.index, each.id]
                said[checkpoints.trial.index, each.id] = (*(rule for rule in rules if rule != "pinned"), *names)
    return said


def _damage(manifest: Manifest) -> str:
    which = f"{manifest.experiment}.{manifest.trial} --step {manifest.step}"
    return f"damaged: look at it, and delete it with daylight checkpoint delete {which}"


def collect(
    store: Store,
    storage: CheckpointStorage,
    experiment: Experiment,
    now: float,
    *,
    dry_run: bool = False,
    damaged: Damaged = lambda place, manifest: False,
) -> GarbageReport:
    """Delete the checkpoints that no retention rule retains, and report them; with `dry_run` only report them.

    Also deletes damaged checkpoints that were quarantined a week ago, and the files of saves that were never committed.
    Running trials are skipped: their ranks apply the rules themselves, and may be reading checkpoints.
    """
    found = trial_checkpoints(store, storage, experiment.number)
    why = reasons(experiment, found, damaged)
    paused = [checkpoints for checkpoints in found if checkpoints.trial.state not in HOLDING_SLOTS]
    retained = [
        (checkpoints, each, why[checkpoints.trial.index, each.id])
        for checkpoints in paused
        for each in checkpoints.manifests
    ]
    goes = [(checkpoints, _decision(each, ("beyond the rules",))) for checkpoints, each, kept in retained if not kept]
    goes += [(checkpoints, each) for checkpoints in paused for each in _set_aside(checkpoints, now)]
    problems = () if dry_run else _delete(goes, paused)
    return GarbageReport(
        goes=tuple(each for _, each in goes),
        stays=tuple(_decision(each, kept) for _, each, kept in retained if kept),
        running=tuple(checkpoints.trial.id for checkpoints in found if checkpoints.trial.state in HOLDING_SLOTS),
        problems=problems,
    )


def _delete(
    goes: Sequence[tuple[TrialCheckpoints, CheckpointDecision]], paused: Sequence[TrialCheckpoints]
) -> tuple[str, ...]:
    problems = []
    for checkpoints, each in goes:
        try:
            checkpoints.place.discard(each.id)
        except OSError as error:
            problems.append(f"checkpoint {each.id} of {checkpoints.trial.id} could not be deleted: {error}")
    for checkpoints in paused:  # a trial that holds slots may commit more checkpoints
        trial = checkpoints.trial
        if trial.attempt or trial.state in TRIAL_ENDED:  # else the one from which it begins may be being copied
            checkpoints.place.sweep(trial.attempt + 1)
    return tuple(problems)


def _decision(manifest: Manifest, reasons: tuple[str, ...]) -> CheckpointDecision:
    return CheckpointDecision(
        experiment=manifest.experiment,
        trial=manifest.trial,
        id=manifest.id,
        bytes=manifest.bytes,
        reasons=reasons,
    )


def _set_aside(checkpoints: TrialCheckpoints, now: float) -> list[CheckpointDecision]:
    """Return decisions to delete damaged checkpoints that were put into quarantine more than a week before `now`.

    What is left of a version of a model stays, since nothing else is.
    """
    return [
        CheckpointDecision(
            experiment=checkpoints.trial.experiment,
            trial=checkpoints.trial.index,
            id=each.name,
            bytes=each.bytes,
            reasons=(f"damaged, set aside {(now - each.since) / 86400:.0f} days ago",),
        )
        for each in checkpoints.place.aside()
        if now - each.since > WEEK_S and each.name.removesuffix(BAD) not in checkpoints.registered
    ]

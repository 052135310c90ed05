"""Implement operations on registered models: register versions, and move and protect their aliases."""

from __future__ import annotations

import asyncio
import time

from kernel_backend.checkpoints.base import Manifest, manifest_digest
from kernel_backend.errors import Conflict, Forbidden, InvalidRequest, NotFound
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.ids import parse_model
from kernel_backend.model.register.history import choose_version, decide_change, known_version
from kernel_backend.model.register.records import (
    Model,
    ModelChange,
    ModelEdit,
    ModelVersion,
    Registered,
    Registration,
)
from kernel_backend.model.values import nearest
from kernel_backend.service.access import changeable, may_submit
from kernel_backend.service.audit import audit_entry
from kernel_backend.service.verbs.checkpoints import CheckpointVerbs
from kernel_backend.store.base import Store
from kernel_backend.store.register.base import ModelStep


class ModelVerbs:
    """Operations on registered models.

    A model belongs to a user, or to a group of the hub whose members change it. The members of the group for which its
    experiments count may look at it.
    """

    def __init__(self, store: Store, checkpoints: CheckpointVerbs) -> None:
        self._store, self._checkpoints = store, checkpoints

    async def models(self, who: Person) -> list[Model]:
        """Return the models that the user may see, by owner and name."""
        return [each for each in await asyncio.to_thread(self._store.models) if _sees(who, each)]

    async def model(self, who: Person, name: str) -> Model:
        """Return a model by its name, such as `memes` or `vision/memes`; raises NotFound."""
        owner, short = _named(who, name)
        for each in await asyncio.to_thread(self._store.models, owner, short):
            if _sees(who, each):
                return each
        raise await self._missing(who, name)

    async def version(self, who: Person, reference: str) -> ModelVersion:
        """Return the version that a reference such as `memes@production` names; raises NotFound."""
        return choose_version(await self.model(who, reference), parse_model(reference).which)

    async def register(self, who: Person, number: int, trial: int, checkpoint: str, asked: Registration) -> Registered:
        """Make a checkpoint the next version of a model; return it, or the version that it is already.

        The checkpoint is pinned, and every byte of it is verified before. Raises NotFound, CheckpointDamaged, Forbidden
        unless the user may change both experiment and model, and Conflict if the model's other versions count for
        another group.
        """
        may_submit(who)
        experiment, owner = await changeable(self._store, who, number), asked.owner or who.name
        if experiment.config.uses_model:
            used = experiment.config.weights_from
            raise InvalidRequest(f"#{number} has no model of its own: register that of {used}")
        _check_changes(who, owner, asked.name)
        there = await asyncio.to_thread(self._store.models, owner, asked.name)
        _check_group(who, there[0] if there else None, owner, experiment)  # before anything is pinned
        await self._checkpoints.whole(experiment, trial, checkpoint)
        async with self._checkpoints.pinning:
            manifest = await self._checkpoints.pinned(number, trial, checkpoint)
            return await asyncio.to_thread(self._register, who, experiment, manifest, asked, owner)

    async def change(self, who: Person, name: str, edit: ModelEdit) -> Model:
        """Move, unset or protect an alias of a model, or remove a version; return the model.

        Raises the errors of `decide_change`, and Forbidden for users who may only look at the model.
        """
        before = await self.model(who, name)
        if before.owner != who.name or edit.act not in ("unset", "remove"):  # what is one's own may be taken back
            may_submit(who)
        _check_changes(who, before.owner, before.name)

        def decide(model: Model | None) -> ModelStep | None:
            change = decide_change(model or before, edit, who.name, time.time(), admin=who.admin)
            return None if change is None else ModelStep(change, entry=_entry(who, before.owner, before.name, change))

        return await asyncio.to_thread(self._store.change_model, before.owner, before.name, decide) or before

    def _register(
        self, who: Person, experiment: Experiment, manifest: Manifest, asked: Registration, owner: str
    ) -> Registered:
        new = self._version(who, experiment, manifest, asked, owner)
        before: list[ModelVersion] = []

        def decide(model: Model | None) -> ModelStep | None:
            if (known := known_version(model, new)) is not None:
                before.append(known)
                return None
            _check_group(who, model, owner, experiment)
            change = ModelChange(at=new.at, who=who.name, act="register", note=asked.note)
            entry = _entry(who, owner, asked.name, change, f" {new.reference}")
            foreign = audit_entry(who, experiment, "register model", f"{owner}/{asked.name}")  # whose file it pins
            return ModelStep(change, new, entry or foreign)

        model = self._store.change_model(owner, asked.name, decide)
        assert model is not None  # it has this version now
        if before:
            return Registered(version=before[0], new=False)
        return Registered(version=model.versions[-1], new=True)

    def _version(
        self, who: Person, experiment: Experiment, manifest: Manifest, asked: Registration, owner: str
    ) -> ModelVersion:
        """Return the version that a checkpoint would become, with what is known of it now."""
        facts = self._store.facts(experiment.number, manifest.trial)
        attempts = self._store.attempts(experiment.number, manifest.trial)
        saved_by = (each.guarantee for each in attempts if each.number == manifest.attempt)
        return ModelVersion(
            owner=owner,
            name=asked.name,
            version=1,
            experiment=experiment.number,
            trial=manifest.trial,
            search=experiment.config.search is not None,
            checkpoint=manifest.id,
            step=manifest.step,
            digest=manifest_digest(manifest),
            snapshot=experiment.snapshot,
            author=experiment.owner,
            group=experiment.group,
            metric=experiment.config.metric,
            metrics=manifest.validation,
            guarantee=next(saved_by, None),
            data=next((str(each.value["digest"]) for each in facts if each.name == "delivered"), None),
            who=who.name,
            at=time.time(),
            note=asked.note,
        )

    async def _missing(self, who: Person, name: str) -> NotFound:
        there = [_title(who, each) for each in await self.models(who)]
        known = f"; there are {', '.join(there[:5])}" if there else ""
        return NotFound(f"there is no model {name}{nearest(name, there)}{known}: daylight models lists them")


def _named(who: Person, name: str) -> tuple[str, str]:
    """Return the owner and the short name of a model; raises NotFound for a text that names none."""
    found = parse_model(name)
    return found.owner or who.name, found.name


def _title(who: Person, model: Model) -> str:
    return model.name if model.owner == who.name else f"{model.owner}/{model.name}"


def _sees(who: Person, model: Model) -> bool:
    return model.owner in who.groups or who.sees(model.owner, model.group)


def _check_changes(who: Person, owner: str, name: str) -> None:
    """Raise Forbidden unless the user owns the model, is in the group that owns it, or is an admin."""
    if not (who.admin or owner == who.name or owner in who.groups):
        raise Forbidden(f"{owner}/{name} is {owner}'s: you may look at it and not change it")


def _check_group(who: Person, model: Model | None, owner: str, experiment: Experiment) -> None:
    """Raise Conflict unless an experiment counts for the group whose members see the model."""
    group = model.group if model else experiment.group if owner == who.name or who.admin else owner
    if group != experiment.group:
        raise Conflict(
            f"the members of the group {group} see all versions of this model, and experiment #{experiment.number} "
            f"counts for {experiment.group}: register it under another name"
        )


def _entry(who: Person, owner: str, name: str, change: ModelChange, detail: str = "") -> AuditEntry | None:
    """Return the audit entry for a change of a model that is not the user's own; None for their own."""
    if who.name == owner:
        return None
    moved = f" {change.alias}" * bool(change.alias) + f" {change.before or 'unset'} -> {change.version or 'unset'}" * (
        change.act in ("set", "unset")
    )
    removed = f" {change.version}" if change.act == "remove" else ""
    return AuditEntry(
        at=change.at,
        who=who.name,
        act=f"{change.act} model",
        on=f"{owner}/{name}",
        detail=f"{moved}{removed}{detail}".strip(),
    )

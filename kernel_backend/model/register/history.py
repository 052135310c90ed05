"""Decide changes of registered models, and what their aliases were at a time: a fold over the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

from kernel_backend.errors import Conflict, Forbidden, InvalidRequest, NotFound
from kernel_backend.model.register.records import Model, ModelChange, ModelEdit, ModelVersion
from kernel_backend.model.values import nearest


class Held(NamedTuple):
    """Aliases with their versions, protected aliases, and removed versions, after some entries of a log."""

    aliases: dict[str, int]
    protected: set[str]
    removed: set[int]


def fold(log: Iterable[ModelChange]) -> Held:
    """Return the state of a model after these entries of its log."""
    held = Held({}, set(), set())
    for each in log:
        if each.act == "set" and each.version is not None:
            held.aliases[each.alias] = each.version
        elif each.act == "unset":
            held.aliases.pop(each.alias, None)
        elif each.act == "remove" and each.version is not None:
            held.removed.add(each.version)
        elif each.act == "protect":
            held.protected.add(each.alias)
        elif each.act == "unprotect":
            held.protected.discard(each.alias)
    return held


def aliases_at(log: Iterable[ModelChange], at: float) -> dict[str, int]:
    """Return the version of each alias at a time (seconds since the epoch); a change counts from its own time on.

    Examples
    --------
    >>> log = [ModelChange(at=10.0, who="ada", act="set", alias="production", version=3)]
    >>> aliases_at(log, 9.9), aliases_at(log, 10.0)
    ({}, {'production': 3})
    """
    return fold(each for each in log if each.at <= at).aliases


def model_of(versions: Sequence[ModelVersion], log: Sequence[ModelChange]) -> Model:
    """Return a model, from all versions that it ever had and its log.

    Entries from the first on that registers another version are ignored: they were stored after `versions` were read.
    """
    known, first = {each.version for each in versions}, versions[0]
    log = tuple(takewhile(lambda each: each.act != "register" or each.version in known, log))
    held = fold(log)
    return Model(
        owner=first.owner,
        name=first.name,
        versions=tuple(each for each in versions if each.version not in held.removed),
        aliases=dict(sorted(held.aliases.items())),
        protected=tuple(sorted(held.protected)),
        log=log,
        group=first.group,
    )


def choose_version(model: Model, which: str) -> ModelVersion:
    """Return the version that an alias or a number names; "" names the newest. Raises NotFound with what there is."""
    if which and not which.isdecimal() and which not in model.aliases:
        there = ", ".join(model.aliases) or "none"
        raise NotFound(f"{model.name} has no alias {which}{nearest(which, model.aliases)}; its aliases: {there}")
    if not which and not model.versions:
        raise NotFound(f"all versions of {model.name} are removed: daylight model {model.name} shows its log")
    number = int(which) if which.isdecimal() else model.aliases.get(which, model.versions[-1].version)
    return _version(model, number)


def known_version(model: Model | None, version: ModelVersion) -> ModelVersion | None:
    """Return the version of a model that points to the same checkpoint as a new one; None if there is none."""
    same = (each for each in (model.versions if model else ()) if each.reference == version.reference)
    return next((each for each in same if each.digest == version.digest), None)


def decide_change(model: Model, edit: ModelEdit, who: str, at: float, *, admin: bool) -> ModelChange | None:
    """Return the entry of the log for a requested change; None if everything is so already.

    Raises NotFound, InvalidRequest, Conflict for an alias that is not where `edit.expect` says and for the removal of a
    version to which an alias points, and Forbidden for a protected alias unless `admin`.
    """
    if edit.act == "remove":
        return _removal(model, edit, who, at)
    if not edit.alias or (edit.act == "set") != (edit.version is not None):
        raise InvalidRequest("name the alias, and for set the version: daylight model memes --set production=3")
    now, protected = model.aliases.get(edit.alias), edit.alias in model.protected
    same = {"set": now == edit.version, "unset": now is None, "protect": protected, "unprotect": not protected}
    if same[edit.act]:
        return None
    if protected and not admin:
        raise Forbidden(f"{model.name}@{edit.alias} is protected: only admins move it, or take the protection away")
    if edit.expect is not None and edit.expect != (now or 0):
        is_now = "is not set" if now is None else f"is {now}"
        raise Conflict(f"{model.name}@{edit.alias} {is_now}, not {edit.expect or 'unset'}: someone has moved it")
    if edit.version is not None:
        _version(model, edit.version)
    moves = edit.act in ("set", "unset")
    before = now if moves else None
    return ModelChange(
        at=at, who=who, act=edit.act, version=edit.version, alias=edit.alias, before=before, note=edit.note
    )


def _removal(model: Model, edit: ModelEdit, who: str, at: float) -> ModelChange | None:
    number = edit.version
    if number is None or edit.alias:
        raise InvalidRequest("name the version to remove: daylight model memes --remove 3")
    if any(each.act == "remove" and each.version == number for each in model.log):
        return None
    _version(model, number)
    if names := [alias for alias, version in model.aliases.items() if version == number]:
        raise Conflict(f"{model.name}@{names[0]} is version {number}: move that alias first, then remove the version")
    return ModelChange(at=at, who=who, act="remove", version=number, note=edit.note)


def _version(model: Model, number: int) -> ModelVersion:
    for each in model.versions:
        if each.version == number:
            return each
    there = ", ".join(str(each.version) for each in model.versions) or "none"
    raise NotFound(f"{model.name} has no version {number}; its versions: {there}")

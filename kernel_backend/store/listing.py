"""Build the queries that list experiments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Text, and_, exists, false, func, or_, select, type_coerce

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.states import HOLDING_SLOTS, AttemptState, ExperimentState, TrialState
from kernel_backend.model.views.overview import DELETED, LIVELIEST
from kernel_backend.store.base import NewExperiment
from kernel_backend.store.tables import attempts, events, experiments, reports, rows_of, trials

_NUMBER = re.compile(r"#?([0-9]{1,9})")
_IN_A_TAG = re.compile(r"[\w.:/+@=#-]+")
_IS_SEARCH = type_coerce(experiments.c.config, Text).contains('"search":{')  # in a text of the JSON, quotes are escaped
_TAGS = type_coerce(experiments.c.tags, Text)  # JSON list of texts that contain no quotes


def find_experiments(
    owner: str | None,
    state: str | None,
    search: str | None,
    group: str | None = None,
    seen_by: Person | None = None,
    tags: Sequence[str] = (),
    notebook: str | None = None,
    before: int | None = None,
    after: int | None = None,
) -> Select[Any]:
    """Return the query that lists experiments, newest first; raises InvalidRequest for an unknown state.

    `notebook` is the end of a notebook's path; `before` selects experiments with lower numbers, for the next page;
    `seen_by` leaves out experiments that this user may not see; `tags` selects those that have all of these tags.
    `after` selects what may have changed since this message, deleted ones included.
    """
    query = rows_of(Experiment, experiments).order_by(experiments.c.number.desc())
    if before is not None:
        query = query.where(experiments.c.number < before)
    if notebook:
        path = func.replace("/" + experiments.c.notebook, "\\", "/", type_=Text)
        query = query.where(path.endswith("/" + notebook.lstrip("/"), autoescape=True))
    if owner is not None:
        query = query.where(experiments.c.owner == owner)
    if group is not None:
        query = query.where(experiments.c.group == group)
    if seen_by is not None and not seen_by.admin:
        theirs = experiments.c.group.in_(seen_by.groups)
        query = query.where(or_(experiments.c.owner == seen_by.name, theirs))
    if after is not None:
        query = query.where(_may_have_changed(after))
    elif state != DELETED:
        query = query.where(experiments.c.deleted_at.is_(None))
    if state:
        query = query.where(_shows(state))
    if search:
        query = query.where(_matches(search.strip()))
    for tag in tags:
        query = query.where(_TAGS.icontains(f'"{tag}"', autoescape=True))
    return query


def find_before(experiment: Experiment | NewExperiment) -> Select[Any]:
    """Return the query for earlier experiments of the same owner and notebook, newest first, without reruns.

    Without a notebook, the name must be the same up to a colon. An experiment that has no number yet is the newest.
    """
    here, number = experiments.c, experiment.number if isinstance(experiment, Experiment) else None
    same = here.notebook == experiment.notebook if experiment.notebook else _named_like(experiment.name)
    query = find_experiments(experiment.owner, None, None, before=number)
    return query.where(here.rerun_of.is_(None), same)


def _named_like(name: str) -> ColumnElement[bool]:
    base = name.partition(": ")[0]
    column = experiments.c.name
    return or_(column == base, column.startswith(f"{base}: ", autoescape=True)) if base else false()


def count_trials(db: Connection, numbers: Sequence[int]) -> dict[int, dict[TrialState, int]]:
    """Return the number of trials of each of these experiments by state."""
    here = trials.c
    query = select(here.experiment, here.state, func.count()).where(here.experiment.in_(numbers))
    found: dict[int, dict[TrialState, int]] = {number: {} for number in numbers}
    for number, state, count in db.execute(query.group_by(here.experiment, here.state)):
        found[number][TrialState(state)] = count
    return found


def _may_have_changed(after: int) -> ColumnElement[bool]:
    """Return the SQL condition that an experiment has newer messages or reports, or changes without any.

    The latter are those that hold slots, whose time passes, and searches, whose state depends on what they wait for.
    """
    heard = (select(table.c.experiment).where(table.c.seq > after) for table in (events, reports))
    holding = select(trials.c.experiment).where(trials.c.state.in_(HOLDING_SLOTS))
    unsaid = and_(experiments.c.state == ExperimentState.ACTIVE, or_(_IS_SEARCH, experiments.c.number.in_(holding)))
    return or_(*(experiments.c.number.in_(each) for each in heard), unsaid)


def _matches(search: str) -> ColumnElement[bool]:
    number = _NUMBER.fullmatch(search)
    tags = (_TAGS,) if _IN_A_TAG.fullmatch(search) else ()  # other texts would match the syntax of the JSON
    labels = (experiments.c.name, experiments.c.note, *tags)
    found = [column.icontains(search, autoescape=True) for column in labels]
    return or_(*found, experiments.c.number == int(number[1])) if number else or_(*found)


def _shows(state: str) -> ColumnElement[bool]:
    """Return the SQL condition that an experiment's overview may show this state, as `Overview.state` decides.

    It selects a search that is active as running and as queued, and gangs in an engine's queue as starting and as
    queued: what they wait for is not stored. `active` matches all active experiments. Raises InvalidRequest for an
    unknown state.
    """
    liveliest = [str(word) for word in LIVELIEST]
    known = dict.fromkeys([*liveliest, *map(str, ExperimentState), DELETED])
    if state not in known:
        raise InvalidRequest(f"{state!r} is no state: use one of {', '.join(known)}")
    if state == DELETED:
        return and_(experiments.c.deleted_at.is_not(None), experiments.c.purged_at.is_(None))
    own = experiments.c.state == state
    if state not in liveliest:
        return own
    of_it = trials.c.experiment == experiments.c.number
    livelier = exists().where(of_it, trials.c.state.in_(liveliest[: liveliest.index(state)]))
    does = and_(exists().where(of_it, trials.c.state == state), ~livelier)
    if state == TrialState.QUEUED:
        pending = exists().where(
            attempts.c.experiment == experiments.c.number, attempts.c.state == AttemptState.PENDING
        )
        does = or_(~livelier, pending, _IS_SEARCH)
    elif state == TrialState.RUNNING:
        does = or_(does, _IS_SEARCH)
    return or_(own, and_(experiments.c.state == ExperimentState.ACTIVE, does))

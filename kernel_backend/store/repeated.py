"""Find the unfinished experiments of which a submission may be a duplicate, among up to 100,000 of one user."""

from __future__ import annotations

import contextlib
import json
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Text, select, type_coerce

from kernel_backend.model.experiment import Experiment
from kernel_backend.model.states import ExperimentState
from kernel_backend.store.base import NewExperiment
from kernel_backend.store.tables import experiments, to_text
from kernel_backend.store.transaction import get_experiment

GOING_ON = (ExperimentState.ACTIVE, ExperimentState.PAUSED)


def read_repeated(db: Connection, draft: NewExperiment) -> list[Experiment]:
    """Return the unfinished experiments of which the submission `draft` may be a duplicate, newest first.

    Experiments whose records cannot be read are left out.
    """
    here = experiments.c
    columns = select(here.number, type_coerce(here.params, Text), type_coerce(here.space, Text))
    theirs = columns.where(here.owner == draft.owner, here.state.in_(GOING_ON))
    same = theirs.where(here.cwd == draft.cwd, here.python == draft.python).order_by(here.number.desc())
    wanted, found = (_value(to_text(draft.params)), _value(to_text(draft.space))), []
    for number, *texts in db.execute(same).fetchall():
        with contextlib.suppress(ValueError, TypeError):
            if tuple(map(_value, texts)) == wanted:
                found.append(get_experiment(db, number))
    return found


@lru_cache(maxsize=4096)
def _value(text: str) -> Any:
    return json.loads(text)

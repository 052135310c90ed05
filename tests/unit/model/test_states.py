"""Test the tables of `model/states.py`: every pair of state and event, and random sequences of events."""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.model import events as e
from kernel_backend.model import states as s

MACHINES: list[tuple[dict[Any, Any], StrEnum, frozenset[Any]]] = [
    (s.EXPERIMENT, s.ExperimentState.ACTIVE, s.EXPERIMENT_ENDED),
    (s.TRIAL, s.TrialState.QUEUED, s.TRIAL_ENDED),
    (s.ATTEMPT, s.AttemptState.PENDING, frozenset({s.AttemptState.ENDED})),
]
machines = pytest.mark.parametrize(("table", "first", "ended"), MACHINES, ids=["experiment", "trial", "attempt"])


def spellings(kind: type[e.Event]) -> list[e.Event]:
    """Return an event with each combination of its guards."""
    names = [field.name for field in fields(kind)]
    return [kind(**dict(zip(names, values, strict=True))) for values in product([True, False], repeat=len(names))]


EVENTS = [event for kind in e.Event.__subclasses__() for event in spellings(kind)]

# The contract, written down apart from the tables: state, event, where it leads.
TRIAL_ROWS = """
    queued    placed -> starting      held -> paused         stop -> stopped       prune -> pruned
    starting  started -> running      finished -> completed  lost -> queued        invalid -> failed
    starting  release -> releasing    stop -> stopping       prune -> stopping
    starting  released+held -> paused released -> queued
    starting  errored+retries_left -> queued                 errored -> failed     lost+held -> queued
    running   finished -> completed   lost -> queued         invalid -> failed     lost+held -> queued
    running   released+held -> paused released -> queued
    running   errored+retries_left -> queued                 errored -> failed
    running   release -> releasing    stop -> stopping       prune -> stopping
    releasing released+held -> paused released -> queued     lost+held -> paused   lost -> queued
    releasing finished -> completed   stop -> stopping       prune -> stopping
    paused    lifted -> queued        stop -> stopped        prune -> pruned
    stopping  ended -> stopped        ended+pruned -> pruned
    completed extended -> queued
"""
EXPERIMENT_ROWS = """
    active    paused -> paused        stop -> stopping       completed -> completed   failed -> failed
    paused    resumed -> active       stop -> stopping       completed -> completed   failed -> failed
    active    extended -> active
    paused    extended -> paused
    stopping  ended -> stopped        ended+pruned -> stopped
    completed extended -> active
"""
ATTEMPT_ROWS = """
    pending   placed -> placed        ended -> ended         ended+pruned -> ended
    placed    started -> running      ended -> ended         ended+pruned -> ended
    running   ending -> ending        ended -> ended         ended+pruned -> ended
    ending    ended -> ended          ended+pruned -> ended
"""


def read(rows: str) -> dict[tuple[str, str], str]:
    """Parse rows such as `queued  placed -> starting  held -> paused` into a table by (state, event+guard)."""
    found = {}
    for line in rows.strip().splitlines():
        state, *words = line.split()
        for event, _, target in zip(*[iter(words)] * 3, strict=True):
            found[state, event] = target
    return found


def spelled(event: e.Event) -> str:
    """Return the event's name with its guard, such as `errored+retries_left`."""
    return "+".join([type(event).__name__.lower(), *(f.name for f in fields(event) if getattr(event, f.name))])


@pytest.mark.parametrize(
    ("states", "rows"),
    [(s.TrialState, TRIAL_ROWS), (s.ExperimentState, EXPERIMENT_ROWS), (s.AttemptState, ATTEMPT_ROWS)],
    ids=["trial", "experiment", "attempt"],
)
def test_every_pair_of_state_and_event_leads_where_the_contract_says_or_is_refused(
    states: type[StrEnum], rows: str
) -> None:
    contract = read(rows)
    for state, event in product(states, EVENTS):
        expected = contract.pop((state, spelled(event)), None)
        if expected is None:
            with pytest.raises(s.IllegalTransition):
                s.advance(state, event)
        else:
            assert s.advance(state, event) == expected, (state, event)
    assert not contract, "rows of the contract that name no state or event"


@machines
def test_what_has_ended_stays_so_unless_a_completed_one_is_extended(
    table: dict[Any, Any], first: StrEnum, ended: frozenset[Any]
) -> None:
    ways_out = {(state, event) for state, event in table if state in ended}
    assert ways_out <= {(s.TrialState.COMPLETED, e.Extended), (s.ExperimentState.COMPLETED, e.Extended)}


@machines
def test_every_state_is_reached_and_every_unended_one_has_a_way_to_an_end(
    table: dict[Any, Any], first: StrEnum, ended: frozenset[Any]
) -> None:
    def reached(start: StrEnum) -> set[StrEnum]:
        seen = {start}
        while more := {t for (a, _), choice in table.items() if a in seen for t in targets(choice)} - seen:
            seen |= more
        return seen

    assert reached(first) == set(type(first))
    assert all(reached(state) & ended for state in type(first))


def targets(choice: Any) -> set[StrEnum]:
    return {choice.if_true, choice.if_false} if isinstance(choice, s.Choice) else {choice}


@machines
def test_a_guard_is_a_field_of_its_event(table: dict[Any, Any], first: StrEnum, ended: frozenset[Any]) -> None:
    for (_, kind), choice in table.items():
        if isinstance(choice, s.Choice):
            assert choice.guard in {field.name for field in fields(kind)}


def test_a_refused_event_says_what_it_was_and_in_which_state() -> None:
    with pytest.raises(s.IllegalTransition, match="lifted is not possible while running") as refused:
        s.advance(s.TrialState.RUNNING, e.Lifted())
    assert refused.value.http_status == 409
    assert refused.value.details == {"state": "running", "event": "lifted"}


@machines
@given(walk=st.lists(st.sampled_from(EVENTS), max_size=60))
def test_on_any_walk_a_refused_event_changes_nothing_and_no_other_machines_state_appears(
    table: dict[Any, Any], first: StrEnum, ended: frozenset[Any], walk: list[e.Event]
) -> None:
    state = first
    for event in walk:
        possible = (state, type(event)) in table
        try:
            state = s.advance(state, event)
        except s.IllegalTransition:
            assert not possible
        else:
            assert possible
            assert type(state) is type(first)


def test_a_trial_holds_slots_exactly_while_a_gang_may_live() -> None:
    granting = {s.advance(s.TrialState.QUEUED, e.Placed())}
    assert granting <= s.HOLDING_SLOTS
    assert not s.HOLDING_SLOTS & s.TRIAL_ENDED
    assert set(s.TrialState) - s.HOLDING_SLOTS - s.TRIAL_ENDED == {s.TrialState.QUEUED, s.TrialState.PAUSED}

"""Test the searcher of evaluations that follow a training: a trial for each checkpoint, once, in their order."""

from __future__ import annotations

import pytest

from kernel_backend.errors import Conflict
from kernel_backend.model.search.records import Create, Followed, Happening, LogEntry, Resume, Settings, Vacancy
from kernel_backend.model.search.space import Space
from kernel_backend.search.follower import Follower
from kernel_backend.search.log import apply_event, fold


def measured(searcher: Follower) -> Create:
    decision = searcher.on_slot()
    assert isinstance(decision, Create)
    return decision


def test_each_checkpoint_is_measured_once_in_the_order_in_which_they_come() -> None:
    searcher = Follower()
    assert (searcher.wants(), searcher.on_slot(), searcher.over()) == (0, None, False)
    for checkpoint in ("3.2/4-1", "3.1/8-1", "3.2/4-1"):
        searcher.on_checkpoint(checkpoint)
    assert searcher.wants() == 2
    first, second = measured(searcher), measured(searcher)
    assert (first.trial, first.begins_from, first.params) == (1, "3.2/4-1:model", {"checkpoint": "3.2@4"})
    assert second.begins_from == "3.1/8-1:model"
    searcher.on_report(1, 1, 0.5)
    searcher.on_checkpoint(None)
    assert not searcher.over()
    searcher.on_exit(2, "failed")
    assert searcher.over()
    searcher.on_checkpoint("3.2/4-1")
    assert searcher.wants() == 0


def test_what_was_interrupted_resumes_first() -> None:
    searcher = Follower()
    for step in (4, 8):
        searcher.on_checkpoint(f"3.1/{step}-1")
    measured(searcher)
    searcher.close()
    assert (searcher.wants(), searcher.over()) == (0, True)
    searcher.extend(None)
    assert searcher.on_slot() == Resume(trial=1, until=1)
    assert measured(searcher).begins_from == "3.1/8-1:model"
    with pytest.raises(Conflict, match="measures each"):
        searcher.promote(1)


def test_after_three_failures_in_a_row_it_ends() -> None:
    searcher = Follower()
    for step in range(6):
        searcher.on_checkpoint(f"3.1/{step}-1")
    for trial, good in enumerate((False, False, True, False, False, False), 1):
        assert searcher.wants()
        measured(searcher)
        if good:
            searcher.on_report(trial, 1, 0.5)
        else:
            searcher.on_exit(trial, "failed")
    assert searcher.over()


def test_its_log_rebuilds_it() -> None:
    searcher, entries = Follower(), list[LogEntry]()
    events: list[Happening] = [Followed(checkpoint="3.1/4-1"), Vacancy(), Followed(checkpoint="3.1/8-1"), Followed()]
    for number, event in enumerate(events, 1):
        entries.append(LogEntry(number=number, at=0.0, event=event, decision=apply_event(searcher, event)))
    again = fold(Settings(method="checkpoints", units=1), Space(), entries)
    assert isinstance(again, Follower)
    assert (again.wants(), again.ended, again.knows("3.1/4-1")) == (1, True, True)
    assert measured(again) == measured(searcher)

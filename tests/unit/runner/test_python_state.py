"""Test that objects held by a user's functions have their old state again after each call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kernel_backend.model.reports import Note
from kernel_backend.runner.determinism.python_state import as_it_was, goes_on
from kernel_backend.runner.ipc import Spool

CALLS: list[int] = [1]
EMPTY: dict[str, int] = {}
COUNT = 0
ENDLESS = iter(range(10))


class Meter:
    def __init__(self) -> None:
        self.total, self.values = 0, [[1]]


METER = Meter()


def counting() -> int:
    global COUNT
    COUNT += 1
    CALLS.append(COUNT)
    EMPTY["calls"] = COUNT
    METER.total += 1
    METER.values[0].append(COUNT)
    return helping()


def helping() -> int:
    METER.values.append([2])
    helping.calls = getattr(helping, "calls", 0) + 1  # type: ignore[attr-defined]
    return COUNT


def closed() -> Callable[[], int]:
    count = 0

    def count_up() -> int:
        nonlocal count
        count += 1
        return count

    return count_up


def test_calls_leave_no_trace() -> None:
    inner = METER.values[0]
    with as_it_was({"loss": counting}):
        assert (counting(), counting()) == (1, 2)
    assert (CALLS, EMPTY, COUNT, METER.total, METER.values) == ([1], {}, 0, 0, [[1]])
    assert METER.values[0] is inner
    assert not vars(helping)


def test_a_closure_counts_on_from_where_it_was() -> None:
    count = closed()
    assert count() == 1
    with as_it_was({"loss": count}):
        assert (count(), count()) == (2, 3)
    assert count() == 2


def test_an_error_restores_too() -> None:
    def failing() -> None:
        counting()
        raise ValueError

    try:
        with as_it_was({"loss": failing}):
            failing()
    except ValueError:
        assert CALLS == [1]


class Proxy:
    """Object without attributes until it is bound, such as werkzeug's `LocalProxy`."""

    @property
    def __dict__(self) -> dict[str, Any]:
        raise RuntimeError("working outside of a context")


def test_an_object_that_refuses_its_attributes_is_passed_over() -> None:
    calls = [Proxy()]
    with as_it_was({"loss": lambda: calls.append(Proxy())}):
        calls.append(Proxy())
    assert len(calls) == 1


def drawing() -> Any:
    return next(ENDLESS)


def test_an_iterator_is_noticed() -> None:
    assert goes_on({"loss": drawing})
    assert not goes_on({"loss": counting})


def test_the_jobs_own_objects_count_on(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", rank=0)
    with as_it_was({"forward": partial(spool.say, Note(text="of a thread"))}):
        spool.say(Note(text="in the block"))
    spool.say(Note(text="after it"))
    lines = (tmp_path / "spool").read_text().splitlines()
    assert [f'"number":{number},' in line for number, line in enumerate(lines, 1)] == [True, True]

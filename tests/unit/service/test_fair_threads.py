"""Test that one caller's works take a share of the threads, in order, and that none is left behind at the end."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from kernel_backend.fairness.threads import CALLER, FairThreads


@pytest.fixture
def threads() -> Iterator[FairThreads]:
    threads = FairThreads(threads=4, share=2)
    yield threads
    threads.shutdown()


def submit(threads: FairThreads, caller: str, work: Callable[..., Any], *given: Any) -> Future[Any]:
    def as_caller() -> Future[Any]:
        CALLER.set(caller)
        return threads.submit(work, *given)

    return contextvars.copy_context().run(as_caller)


def test_works_of_others_and_of_the_service_run_while_those_of_one_caller_wait(threads: FairThreads):
    gate, order = threading.Event(), list[int]()
    slow = [submit(threads, "ada", lambda number: (gate.wait(), order.append(number)), n) for n in range(20)]
    assert submit(threads, "bob", lambda: "bob's").result(20) == "bob's"
    assert threads.submit(lambda: "the service's").result(20) == "the service's"
    assert not any(each.done() for each in slow)
    slow[5].cancel()
    gate.set()
    assert [each.exception(20) for each in slow if not each.cancelled()] == [None] * 19
    assert sorted(order) == [n for n in range(20) if n != 5]
    assert not threads._running
    assert not threads._waiting


def test_an_error_is_the_work_s_and_the_next_one_runs(threads: FairThreads):
    works = [submit(threads, "ada", int, text) for text in ("x", "y", "z", "4")]
    assert [type(each.exception(20)) for each in works] == [ValueError] * 3 + [type(None)]


def test_what_waits_at_the_end_is_cancelled(threads: FairThreads):
    gate = threading.Event()
    works = [submit(threads, "ada", gate.wait) for _ in range(6)]
    threads.shutdown(wait=False)
    gate.set()
    threads.shutdown()
    assert [each.cancelled() for each in works] == [False] * 2 + [True] * 4

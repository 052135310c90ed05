"""Test that a trace of a running training is requested, delivered to its launchers, and reported."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import Conflict, InvalidRequest
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.trace import OPERATIONS, RankTrace, Trace, TracedOperation, TraceRequest
from kernel_backend.model.reports import Delivery, Traced
from tests.api.served import Served, keep, started, submit, token_of
from tests.api.test_cli import submitted
from tests.support.world import until

FIRST = AttemptId(1, 1, 1)


@pytest.fixture
def running(served: Served, client: Client) -> Callable[..., Trace | None]:
    """Provide a running training, as a function that delivers records and returns the requested trace."""
    submit(client, slots=2)

    def deliver(*records: object) -> Trace | None:
        return client.deliver(FIRST, token_of(served, FIRST), Delivery.model_validate({"records": records})).trace

    assert deliver(started()) is None
    return deliver


def test_launchers_are_given_a_request_until_it_is_answered(
    client: Client, running: Callable[..., Trace | None]
) -> None:
    client.trace(1, TraceRequest(steps=7, ranks=(1, 0, 1)))
    trace = running()
    assert trace is not None
    assert (trace.steps, trace.ranks) == (7, (0, 1))
    assert running() == trace
    with pytest.raises(Conflict, match=r"attempt 1.1-1 is recording a trace already"):
        client.trace(1, TraceRequest())
    assert running(Traced(number=2, id="of another one", text="traced")) == trace
    assert running(Traced(number=3, id=trace.id, text="traced steps 3 to 9 of ranks 0, 1")) is None
    overview = client.experiment(1)
    assert overview.attempts[0].trace is None
    assert "traced steps 3 to 9 of ranks 0, 1" in overview.warnings


def test_a_delivery_while_a_request_is_stored_does_not_lose_it(
    served: Served, client: Client, running: Callable[..., Trace | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, token = served.service._store.set_trace, token_of(served, FIRST)
    told: list[Trace | None] = []

    def late(*args: Any) -> Any:
        with contextlib.closing(served.client()) as launcher:
            told.append(launcher.deliver(FIRST, token, Delivery()).trace)
        return store(*args)

    monkeypatch.setattr(served.service._store, "set_trace", late)
    client.trace(1, TraceRequest())
    assert told == [None]
    assert running() is not None


def test_an_attempt_that_ends_before_says_so(
    served: Served, client: Client, running: Callable[..., Trace | None]
) -> None:
    client.trace(1, TraceRequest())
    served.engine.end(FIRST)
    text = "the trace that was asked for is not there: the attempt ended before it was recorded"
    until(lambda: text in client.experiment(1).warnings, "the end is told")


def test_what_cannot_be_traced_is_refused(client: Client, running: Callable[..., Trace | None]) -> None:
    with pytest.raises(InvalidRequest, match=r"there is no rank 2 in attempt 1.1-1: it has ranks 0 to 1"):
        client.trace(1, TraceRequest(ranks=(0, 2)))
    client.pause(1)
    until(lambda: (trial := client.experiment(1).front) and trial.state == "releasing", "the trial is releasing")
    with pytest.raises(Conflict, match=r"trial 1.1 is releasing: a trace is recorded while it is running"):
        client.trace(1, TraceRequest())


def test_the_newest_trace_is_a_table(service: Served, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submitted(file)
    assert main(["profile", "1", "--trace"]) == 0
    assert "no trace has been recorded" in capsys.readouterr().out
    found = RankTrace(rank=0, first=3, last=4, operations=(TracedOperation(name="aten::mm", calls=8, cpu_ms=1.25),))
    keep(service, {f"{OPERATIONS}.json": json.dumps([found.to_json()]).encode()})
    assert main(["profile", "1", "--trace"]) == 0
    out = capsys.readouterr().out
    assert "aten::mm" in out
    assert "steps 3 to 4 of rank 0" in out
    assert main(["profile", "1", "--ranks", "0"]) != 0
    assert main(["profile", "1", "--steps", "3", "--ranks", "x"]) != 0

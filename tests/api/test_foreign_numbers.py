"""Test that the reason for waiting reveals no experiment or quota that the reader has no access to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from kernel_backend.client import Client
from kernel_backend.model.cluster.accounts import Waiting
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Committed, Delivery
from kernel_backend.scheduler.rules import Rules
from tests.api.people import FakeHub
from tests.api.served import Served, StillEngine, started, submit, token_of
from tests.support.world import until


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Provide two slots, dave and danielle of group vision, eve of speech, and the admin ada."""
    served = Served(tmp_path, StillEngine(), identity=FakeHub(), rules=Rules(min_run=0.0))
    yield served
    served.stop()


@pytest.fixture
def client(served: Served) -> Iterator[dict[str, Client]]:
    made = {name: served.client(name) for name in ("dave", "danielle", "eve", "ada")}
    yield made
    for each in made.values():
        each.close()


def number(client: Client, **config: Any) -> int:
    return submit(client, **config).experiment.number


def why(client: Client, asked: int) -> str:
    """Return why an experiment waits, as its overview says; `list` and `queue` must say the same."""
    wait = client.experiment(asked).wait
    assert wait is not None
    assert row(client, asked).wait == wait
    assert {each.experiment.number: each.wait for each in client.experiments(group="")}[asked] == wait
    return wait.reason


def row(client: Client, asked: int) -> Waiting:
    return next(each for each in client.queue() if each.experiment == asked)


def test_for_whom_slots_are_kept_is_told_with_a_number_to_whoever_may_see_it(
    served: Served, client: dict[str, Client]
) -> None:
    running = number(client["eve"], slots=1)
    token_of(served, AttemptId(running, 1, 1))
    kept_for, waits = number(client["dave"], slots=2), number(client["eve"], slots=1)
    until(lambda: served.run(served.service._loop.cluster_state.now()).reservations, "something is kept for the first")
    assert why(client["eve"], waits) == "2nd in queue; slots are reserved for another's training, which is next"
    assert why(client["ada"], waits) == f"2nd in queue; slots are reserved for #{kept_for}.1, which is next"
    behind = number(client["danielle"], slots=1)
    assert why(client["danielle"], behind).endswith(f"slots are reserved for #{kept_for}.1, which is next")


def test_whose_guarantee_slots_are_kept_for_is_told_to_whoever_may_see_it(
    served: Served, client: dict[str, Client]
) -> None:
    served.roster.users = {"dave": Quota(guarantee=2)}
    token_of(served, AttemptId(number(client["eve"], slots=1), 1, 1))
    number(client["dave"], slots=2)
    waits, behind = number(client["eve"], slots=1), number(client["danielle"], slots=1)
    assert why(client["eve"], waits).endswith("slots are reserved for the guarantee of another")
    assert why(client["danielle"], behind).endswith("slots are reserved for the guarantee of dave")
    assert why(client["ada"], waits).endswith("slots are reserved for the guarantee of dave")


def test_the_numbers_of_a_quota_are_told_to_those_whose_it_is(served: Served, client: dict[str, Client]) -> None:
    served.roster.users = {"dave": Quota(limit=1)}
    token_of(served, AttemptId(number(client["dave"], slots=1), 1, 1))
    waits = number(client["dave"], slots=1)
    assert why(client["dave"], waits) == "next in queue; your limit of 1 is in use"
    assert why(client["danielle"], waits) == "next in queue; its owner's limit is in use"
    assert why(client["ada"], waits) == "next in queue; dave's limit of 1 is in use"
    served.roster.users, served.roster.groups = {}, {"vision": Quota(limit=1)}
    for name in ("dave", "danielle", "ada"):
        assert why(client[name], waits) == "next in queue; the limit of 1 of group vision is in use"
    hub = served.identity
    assert isinstance(hub, FakeHub)
    hub.people["dave"] = Person(name="dave", groups=("speech",))
    assert why(client["dave"], waits) == "next in queue; the limit of group vision is in use"


def test_who_is_in_no_group_is_named_to_whoever_may_see_it(served: Served, client: dict[str, Client]) -> None:
    hub = served.identity
    assert isinstance(hub, FakeHub)
    hub.people["eve"] = Person(name="eve", groups=())
    running = number(client["eve"], slots=2)
    token_of(served, AttemptId(running, 1, 1))
    waits = number(client["eve"], slots=1)
    for name, owner, asked in (("eve", "eve", waits), ("ada", "eve", waits), ("dave", "", None)):
        (held,) = [run for node in client[name].nodes() for run in node.runs]
        (asks,) = client[name].queue()
        assert (held.owner, held.group, asks.owner, asks.group, asks.experiment) == (owner,) * 4 + (asked,)


def test_whom_a_training_made_room_for_is_told_to_whoever_may_see_it(served: Served, client: dict[str, Client]) -> None:
    served.roster.groups = {"vision": Quota(guarantee=2)}
    borrows = number(client["eve"], slots=2)
    key = AttemptId(borrows, 1, 1)
    committed = Committed(number=2, at=5.0, id="9-1", step=9, epoch=1.0, bytes=9, seconds=0.1)
    client["eve"].deliver(key, token_of(served, key), Delivery(records=(started(), committed)))
    owns = number(client["dave"], slots=2)
    until(lambda: client["eve"].experiment(borrows).trials[0].state == "releasing", "it is asked to go")
    until(lambda: client["eve"].experiment(borrows).warnings, "and told why")
    told = {name: client[name].experiment(borrows).warnings for name in ("eve", "ada")}
    ends = "is within a guarantee; it resumes when slots are free"
    assert f"attempt 1 was preempted: another's training {ends}" in told["eve"]
    assert f"attempt 1 was preempted: #{owns}.1 {ends}" in told["ada"]
    assert heard(served, "eve", borrows) == {each for each in told["eve"] if "was preempted" in each}
    assert heard(served, "ada", borrows) == {each for each in told["ada"] if "was preempted" in each}
    served.service._store.note(key, f"attempt 1 was put aside: #{owns}.1 {ends}", 9.0)  # as older versions wrote it
    assert f"attempt 1 was put aside: another's training {ends}" in client["eve"].experiment(borrows).warnings


def heard(served: Served, token: str, asked: int) -> set[str]:
    """Return the text of the first note about a preemption that the stream sends."""
    headers = {"Authorization": f"Bearer {token}"}
    url = f"ws://127.0.0.1:{served.port}/api/stream?after=0&experiment={asked}"
    with connect(url, additional_headers=headers, proxy=None) as watching:
        while True:
            message = json.loads(watching.recv(20))
            if message["type"] == "note" and "was preempted" in message["data"]["text"]:
                return {message["data"]["text"]}


def test_guarantees_that_add_up_to_too_much_name_others_to_admins_alone(
    served: Served, client: dict[str, Client]
) -> None:
    served.service.stored_quotas.users = {"dave": Quota(guarantee=2), "eve": Quota(guarantee=1)}
    (mine,) = [each for each in client["dave"].accounts() if each.kind == "user"]
    assert mine.warnings == ("more is guaranteed than there are slots: not all can have theirs at once",)
    submit(client["dave"])
    theirs = next(each for each in client["ada"].accounts() if each.name == "dave")
    assert "user dave (2), user eve (1)" in theirs.warnings[0]

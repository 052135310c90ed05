"""Test slot-hours, energy and cost over HTTP and on the command line: a user's own, and all of them for admins."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.utilisation import DeliveredUse, SlotUse
from kernel_backend.model.reports import Delivery
from kernel_backend.model.resources import Node
from tests.api.people import FakeHub
from tests.api.served import Served, StillEngine, started, submit, token_of
from tests.api.test_cli import submitted

NODE = Node(name="n1", kind="cpu", address="127.0.0.1", slots=4, cores=4)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, Client]]:
    """Let dave and eve train on two slots each, where a slot-hour costs 3600."""
    served = Served(tmp_path, StillEngine((NODE,)), identity=FakeHub(), local_price=3600.0)
    people = {name: served.client(name) for name in ("dave", "eve", "ada")}
    for number, name in enumerate(("dave", "eve"), 1):
        submit(people[name], f"net of {name}", slots=2)
        key = AttemptId(number, 1, 1)
        use = DeliveredUse(rank=0, number=1, use=SlotUse(at=time.time(), seconds=36.0, power=1e5 * number))
        people[name].deliver(key, token_of(served, key), Delivery(records=(started(),), use=(use,)))
    yield people
    for each in people.values():
        each.close()
    served.stop()


def test_everybody_sees_their_own_and_admins_all(cluster: dict[str, Client]) -> None:
    (own,) = cluster["dave"].spending("user").rows
    assert own.name == "dave"
    assert own.kwh == 1.0
    assert own.cost == pytest.approx(3600 * own.slot_hours)
    assert own.slot_hours > 0
    everyone = cluster["ada"].spending("user")
    assert {row.name: row.kwh for row in everyone.rows} == {"dave": 1.0, "eve": 2.0}
    assert everyone.total.kwh == 3.0
    assert {row.name for row in cluster["ada"].spending("group").rows} == {"vision", "speech"}
    assert [(row.name, row.title) for row in cluster["eve"].spending("experiment").rows] == [("2", "net of eve")]
    assert [row.name for row in cluster["eve"].spending().rows] == [time.strftime("%Y-%m", time.gmtime())]
    assert cluster["ada"].spending(until=time.time() - 3600).rows == ()


def test_what_cannot_be_answered_is_refused(cluster: dict[str, Client]) -> None:
    with pytest.raises(InvalidRequest, match=r"by=users \(did you mean user\?\)"):
        cluster["dave"].spending("users")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="is not before until="):
        cluster["dave"].spending(since=20.0, until=10.0)


def test_the_command_line_shows_a_table_json_and_csv(service: Served, file, capsys) -> None:
    submitted(file)
    token_of(service, AttemptId(1, 1, 1))  # it has been granted its slots
    month = time.strftime("%Y-%m", time.gmtime())
    capsys.readouterr()
    assert main(["usage", "--month", month]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["month", "slot-hours", "lost", "repeated", "waiting", "pruned", "kWh"]
    assert row.split()[0] == month
    assert row.split()[-1] == "unknown"
    assert main(["usage", "--by", "experiment", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["name"] == "1"
    assert main(["usage", "--by", "experiment", "--csv"]) == 0
    printed = capsys.readouterr().out.splitlines()
    answer = httpx.get(
        f"{service.url}/api/usage.csv?by=experiment",
        headers={"Authorization": "Bearer the-right-token"},
        trust_env=False,
    )
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert printed[0] == answer.text.splitlines()[0]
    assert printed[1].startswith("1,")
    assert main(["usage", "--month", "2001-01"]) == 0
    assert capsys.readouterr().out == "no slots were used\n"
    assert main(["usage", "--month", "soon"]) == 2

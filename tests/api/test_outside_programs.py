"""Test programs outside of Daylight on its nodes: who sees them, and how notebook servers among them are charged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernel_backend.model.cluster.people import Person
from kernel_backend.model.cluster.servers import Server
from kernel_backend.model.resources import Holder, Node
from tests.api.people import FakeHub
from tests.api.served import Served, StillEngine, submit
from tests.support.world import until

HELD = (Holder(name="pod ml/web", slots=1), Holder(name="pod jhub/jupyter-dave", slots=2, server="dave/"))
NODE = Node(name="n1", kind="cuda", address="10.0.0.1", slots=4, held_by=HELD)
DAVE, EVE = Person(name="dave", groups=("vision",)), Person(name="eve", groups=("robots",))


@pytest.fixture
def served(tmp_path) -> Iterator[Served]:
    hub = FakeHub()
    hub.people = {each.name: each for each in (DAVE, EVE, Person(name="ada", admin=True))}
    served = Served(tmp_path, StillEngine([NODE]), identity=hub)
    yield served
    served.stop()


async def _report(served: Served) -> None:
    """Let the hub report a server of dave's whose options request no slots."""
    dave = Server(owner="dave", group="vision", slots=0, since=0.0, last_activity=0.0)
    served.service.notebooks.give([dave])


def test_a_server_is_charged_for_what_its_pod_holds_and_other_programs_are_named_to_admins(served):
    served.run(_report(served))
    ada, dave, eve = (served.client(name) for name in ("ada", "dave", "eve"))
    (account,) = (each for each in dave.me().accounts if each.kind == "user")
    assert account.use.held == 2
    assert [(each.full_name, each.slots, each.node) for each in dave.me().servers] == [("dave/", 2, "n1")]
    assert eve.me().servers == ()
    seen = {client: client.nodes()[0] for client in (ada, dave, eve)}
    assert all(node.used == 3 for node in seen.values())
    assert {run.outside for run in seen[ada].runs} == {"pod ml/web", ""}
    assert {run.outside for run in seen[dave].runs} == {"another program", ""}
    assert {(run.server, run.owner) for run in seen[eve].runs} == {(None, "")}
    number = submit(dave, slots=2).experiment.number

    def waits() -> bool:
        wait = dave.experiment(number).wait
        return wait is not None and "2 slots requested, 1 of 4 free" in wait.reason

    until(waits, "it waits for a slot that others hold")
    assert ada.drain("n1").drained
    (entry,) = (each for each in ada.audit() if each.act == "drain")
    assert entry.detail == "1 gang there"
    for client in (ada, dave, eve):
        client.close()

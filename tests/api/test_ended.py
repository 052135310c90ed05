"""Test the requests by which a page learns that a training has ended."""

from __future__ import annotations

from kernel_backend.client import Client
from kernel_backend.model.ids import AttemptId
from tests.api.served import Served, ended, submit


def test_what_has_ended_since_then_is_listed_with_its_result(served: Served, client: Client) -> None:
    assert (client.ended().ended, client.ended().active) == ((), False)
    for name in ("one", "two"):
        submit(client, name)
    ended(served, client, AttemptId(1, 1, 1))
    first = client.ended()
    assert [(each.number, each.state, each.text) for each in first.ended] == [(1, "completed", "#1 one completed")]
    assert first.active
    assert client.ended(int(first.at) + 1).ended == ()
    ended(served, client, AttemptId(2, 1, 1))
    last = client.ended()
    assert [each.number for each in last.ended] == [1, 2]
    assert not last.active
    client.delete_experiment(1)
    assert [each.number for each in client.ended().ended] == [2]

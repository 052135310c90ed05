"""Test the rows from which a page makes its table of experiments."""

from __future__ import annotations

from typing import Any

import httpx

from kernel_backend.client import Client
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.versions import read
from kernel_backend.model.views.experiment_row import ExperimentTable
from tests.api.served import TOKEN, Served, ended, submit

HTTP = httpx.Client(timeout=120, trust_env=False)


def table(served: Served, **query: Any) -> ExperimentTable:
    url, headers = f"{served.url}/api/experiments/table", {"Authorization": f"Bearer {TOKEN}"}
    answer = HTTP.get(url, params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    return read(ExperimentTable, answer.json())


def test_a_table_has_all_experiments_page_by_page_and_then_what_has_changed(served: Served, client: Client) -> None:
    assert table(served).rows == ()
    for name in ("one", "two", "three"):
        submit(client, name)
    first = table(served, limit=2)
    assert [row.name for row in first.rows] == ["three", "two"]
    assert [row.name for row in table(served, before=2, limit=2).rows] == ["one"]

    ended(served, client, AttemptId(1, 1, 1))
    changed = table(served, after=first.seq)
    one = next(row for row in changed.rows if row.number == 1)
    assert (one.state, one.standing) == ("completed", "completed")
    assert changed.seq > first.seq
    client.delete_experiment(1)
    assert [(row.number, row.state) for row in table(served, after=changed.seq).rows if row.number == 1] == [
        (1, "deleted")
    ]
    assert 1 not in [row.number for row in table(served).rows]

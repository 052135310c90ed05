"""Test that true and false in a request are no numbers: `{"experiment": true}` is not experiment #1."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from kernel_backend.client import Client
from tests.api.served import TOKEN, Served, submit


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("gc", {"experiment": True}, "experiment"),
        ("experiments/1/resume", {"slots": True}, "slots"),
        ("experiments/1/rerun", {"trial": True}, "trial"),
        ("experiments/1/extend", {"trials": True}, "trials"),
        ("experiments/1/trace", {"steps": 3, "ranks": [0, False]}, "ranks.1"),
    ],
)
def test_true_is_no_number(served: Served, client: Client, path: str, body: dict[str, Any], place: str) -> None:
    submit(client)
    answer = httpx.post(f"{served.url}/api/{path}", json=body, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 400
    assert answer.json()["message"] == f"{place}: true and false are no numbers: send a number"

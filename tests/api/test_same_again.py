"""Test that a repeated submission returns the active experiment, unless a new one is requested."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel_backend.client import Client
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.ids import AttemptId
from tests.api.served import DEFINITION, Served, archive, paused

OTHERS = [
    {"params": {"lr": 0.5}},
    {"config": Config(slots=1, epochs=3)},
    {"cwd": "/tmp"},
    {"python": "/usr/bin/python3.99"},
    {"definition": DEFINITION + "x = 1\n"},
    {"again": True},
    {"rerun_of": 1},
]


def submit(client: Client, definition: str = DEFINITION, **asked: object) -> tuple[int, bool]:
    """Submit, and return the experiment's number and whether it is new."""
    id, data = archive(definition)
    client.upload_snapshot(id, data)
    standard = {"snapshot": id, "config": Config(slots=1), "python": "/usr/bin/python3", "cwd": "/"}
    overview, new = client.submit_once(Submission.model_validate(standard | asked))
    return overview.experiment.number, new


def test_it_is_shown_again_whatever_its_name_comments_and_place(client: Client) -> None:
    assert submit(client) == (1, True)
    assert submit(client) == (1, False)
    assert submit(client, definition="# a comment\n\n" + DEFINITION, name="another name") == (1, False)
    client.pause(1)
    assert submit(client) == (1, False)


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: next(iter(other)))
def test_anything_that_changes_a_result_makes_another(client: Client, other: dict[str, object]) -> None:
    assert submit(client) == (1, True)
    assert submit(client, **other) == (2, True)


def test_what_was_changed_afterwards_makes_no_other(client: Client) -> None:
    assert submit(client) == (1, True)
    client.set_priority(1, -3)
    assert submit(client) == (1, False)
    assert submit(client, config=Config(slots=1, priority=-3)) == (1, False)
    assert submit(client, config=Config(slots=1, priority=-5)) == (2, True)


def test_slots_that_it_was_given_afterwards_make_no_other(served: Served, client: Client) -> None:
    assert submit(client) == (1, True)
    paused(served, client, AttemptId(1, 1, 1))
    client.resume(1, slots=2)
    assert submit(client) == (1, False)


def test_one_that_has_ended_is_made_again(client: Client) -> None:
    submit(client)
    client.stop(1)
    assert submit(client) == (2, True)
    assert submit(client) == (2, False)


def test_of_many_at_once_one_is_made(client: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: submit(client), range(8)))
    assert {number for number, _ in found} == {1}
    assert sum(new for _, new in found) == 1


@pytest.mark.parametrize("damaged", [True, False])
def test_one_whose_snapshot_is_gone_or_damaged_is_like_no_other(served: Served, client: Client, damaged: bool) -> None:
    assert submit(client) == (1, True)
    [snapshot] = (served.home / "snapshots").glob("*.zip")
    if damaged:
        snapshot.write_bytes(b"no zip")
    else:
        snapshot.unlink()
    assert submit(client, definition=DEFINITION + "y = 1\n") == (2, True)


def test_one_that_cannot_be_read_is_not_found_and_stops_no_other(served: Served, client: Client) -> None:
    assert submit(client) == (1, True)
    with sqlite3.connect(served.home / "daylight.db") as database:
        database.execute("UPDATE experiments SET config = '{' WHERE number = 1")
    assert submit(client) == (2, True)
    assert submit(client) == (2, False)
